//! Finds the key file that a password opens, and with it the master key.
//!
//! restic gives up at the first key file that it cannot parse (restic `internal/repository/key.go`
//! searchKey); here bad ones are skipped and counted, since one damaged file should not hide the
//! locks from those who watch. This module reads key files and nothing else.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::config_file::{BadConfig, Config};
use super::connect::store_failed;
use super::crypto::MasterKey;
use super::derivation::{DerivationBudget, DeriveError};
use super::key::{self, KEY_FILE_BYTES_MAX, KEYS_READ_MAX, KEYS_TRIED_MAX, KeyFile};
use super::repository::Repository;
use super::turns::Urgency;
use crate::scan::{ErrorClass, ScanError};
use crate::secret::{Opener, Secret};
use crate::store::StoreErrorKind;

/// The opened repository.
#[derive(Clone, Debug)]
pub struct Unlocked {
    /// What opens its files.
    pub master: Arc<MasterKey>,
    /// The key file that gave the master key; `None` when the master key itself was given.
    pub key_id: Option<Arc<str>>,
    /// Key files that could not be used, seen before one opened.
    pub skipped: u32,
    /// Its `config`; `None` where that may not be read.
    pub config: Option<Config>,
}

/// How to search.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    /// Time limit of each request; waiting for memory and deriving have none.
    pub timeout: Duration,
    /// Where the memory comes from.
    pub budget: &'a DerivationBudget,
    /// How soon the key is wanted.
    pub urgency: &'a Urgency,
}

/// Opens a repository with the secret of its session.
///
/// # Errors
/// `wrong_password` when no key opens, `damaged` when there is nothing that could be opened,
/// `unsupported` when it would cost too much, `permission` when key files cannot be read, else as
/// the backend fails.
pub async fn unlock(repository: &Repository, search: Search<'_>) -> Result<Unlocked, ScanError> {
    match &repository.session.opener {
        Opener::Password(password) => {
            let mut unlocked = find_key(repository, password, search).await?;
            unlocked.config = repository
                .open_config(&unlocked.master)
                .map_err(|error| bad_config(&error, ErrorClass::Damaged))?;
            Ok(unlocked)
        }
        Opener::MasterKey(secret) => {
            let master = MasterKey::from_json(secret.expose()).map_err(|error| {
                ScanError::new(
                    ErrorClass::Config,
                    "read the master key",
                    &error.to_string(),
                    "Give the output of `restic cat masterkey`.",
                )
            })?;
            let config = repository
                .open_config(&master)
                .map_err(|error| bad_config(&error, ErrorClass::WrongPassword))?;
            Ok(Unlocked { master: Arc::new(master), key_id: None, skipped: 0, config })
        }
        Opener::Sealed => Err(ScanError::new(
            ErrorClass::Internal,
            "open the repository",
            "there is no key to open it with",
            "",
        )),
    }
}

/// `unfit` is what it means that `config` does not open with the key.
pub fn bad_config(error: &BadConfig, unfit: ErrorClass) -> ScanError {
    let (class, advice) = match error {
        BadConfig::Sealed(_) => (unfit, "Check that key and repository belong together."),
        BadConfig::Json => (ErrorClass::Damaged, "Restore config from a copy of the repository."),
        BadConfig::Version(_) => (ErrorClass::Unsupported, "Look for a newer lock_exporter."),
    };
    ScanError::new(class, "open config", &error.to_string(), advice)
}

/// What became of the key files that did not open, or were left alone.
#[derive(Default)]
struct Tally {
    tried: usize,
    skipped: u32,
    left_out: usize,
    bad: Option<String>,
    refused: Option<ScanError>,
    costly: Option<ScanError>,
}

async fn find_key(
    repository: &Repository,
    password: &Secret,
    search: Search<'_>,
) -> Result<Unlocked, ScanError> {
    let (ids, hinted) = key::order(&repository.keys, repository.session.hint.as_deref());
    let tried_max = KEYS_TRIED_MAX + hinted.min(1);
    let mut tally = Tally::default();
    for (index, id) in ids.iter().copied().enumerate() {
        if tally.tried == tried_max || index == KEYS_READ_MAX {
            tally.left_out = ids.len() - index;
            break;
        }
        let place = format!("{}/{id}", repository.layout.keys());
        let file = match read_key(repository, &place, id, search.timeout).await? {
            Read::File(file) => file,
            Read::Bad(why) => {
                tally.skipped += 1;
                tally.bad.get_or_insert(format!("{}: {why}", short(&place)));
                continue;
            }
            Read::Refused(error) => {
                tally.skipped += 1;
                tally.refused.get_or_insert(error);
                continue;
            }
        };
        match search.budget.open(id, file, password, search.urgency).await {
            Ok(Some(master)) => {
                let key_id = Some(id.into());
                return Ok(Unlocked { master, key_id, skipped: tally.skipped, config: None });
            }
            Ok(None) => tally.tried += 1,
            Err(error @ DeriveError::OverBudget { .. }) => {
                tally.skipped += 1;
                tally.costly.get_or_insert(ScanError::new(
                    ErrorClass::Unsupported,
                    &format!("open {}", short(&place)),
                    &error.to_string(),
                    "Give the exporter more memory, or `restic key add` a key made by restic.",
                ));
            }
            // It may fit, and nobody knows: other keys cannot tell that the password is wrong.
            Err(error @ DeriveError::NoMemory(_)) => {
                return Err(ScanError::new(
                    ErrorClass::Other,
                    &format!("open {}", short(&place)),
                    &error.to_string(),
                    "Raise the exporter's memory limit, or `restic key add` a key made by restic.",
                ));
            }
            Err(DeriveError::Bad(why)) => {
                tally.skipped += 1;
                tally.bad.get_or_insert(format!("{}: {why}", short(&place)));
            }
            Err(DeriveError::Interrupted) => {
                return Err(ScanError::new(
                    ErrorClass::Internal,
                    &format!("open {}", short(&place)),
                    &DeriveError::Interrupted.to_string(),
                    "",
                ));
            }
        }
    }
    Err(none_opens(tally))
}

/// The most telling reason why no key opened: what could not be tried might have fitted.
fn none_opens(tally: Tally) -> ScanError {
    if let Some(error) = tally.refused.or(tally.costly) {
        return error;
    }
    let (class, doing, mut cause) = if tally.tried == 0 {
        let why = tally.bad.as_deref().unwrap_or("there are none");
        (ErrorClass::Damaged, "read key files", format!("none can be used; {why}"))
    } else {
        let cause = format!("the password opens none of {} key files", tally.tried);
        (ErrorClass::WrongPassword, "open key files", cause)
    };
    if tally.tried > 0 && tally.skipped > 0 {
        cause = format!("{cause}, {} more could not be used", tally.skipped);
    }
    let advice = if tally.left_out > 0 {
        cause = format!("{cause}, and {} more were not tried", tally.left_out);
        "Check the password, or name its key by a key hint."
    } else if tally.tried == 0 {
        "Restore the files in keys/ from a copy."
    } else {
        "Check the password: `restic cat config` must work with it."
    };
    ScanError::new(class, doing, &cause, advice)
}

enum Read {
    File(KeyFile),
    Bad(String),
    Refused(ScanError),
}

/// Reads one key file, once more when its bytes are not what its name says, as restic does.
async fn read_key(
    repository: &Repository,
    place: &str,
    id: &str,
    timeout: Duration,
) -> Result<Read, ScanError> {
    for _ in 0..2 {
        let read = repository.store().read(place, KEY_FILE_BYTES_MAX);
        let Ok(read) = tokio::time::timeout(timeout, read).await else {
            return Err(ScanError::new(
                ErrorClass::Timeout,
                &format!("read {}", short(place)),
                &format!("no answer within {} s", timeout.as_secs()),
                "",
            ));
        };
        match read {
            Ok(bytes) if hex::encode(Sha256::digest(&bytes)) == id => {
                return Ok(match KeyFile::parse(&bytes) {
                    Ok(file) => Read::File(file),
                    Err(why) => Read::Bad(why.to_string()),
                });
            }
            Ok(_) => {}
            Err(error) => match error.kind {
                StoreErrorKind::NotFound => return Ok(Read::Bad("it is gone".into())),
                StoreErrorKind::TooLarge => {
                    return Ok(Read::Bad("it is too large to be a key file".into()));
                }
                StoreErrorKind::Archived | StoreErrorKind::Failed(ErrorClass::Permission) => {
                    return Ok(Read::Refused(ScanError::new(
                        error.kind.class(),
                        &error.doing,
                        &format!("cannot read key files: {}", error.cause),
                        &error.advice,
                    )));
                }
                StoreErrorKind::Failed(_) => return Err(store_failed(&error)),
            },
        }
    }
    Ok(Read::Bad("its name is not the SHA-256 of its content".into()))
}

/// A path with its id cut to the ten digits that people compare.
fn short(place: &str) -> &str {
    let folder = place.find('/').map_or(0, |at| at + 1);
    place.get(..folder + 10).unwrap_or(place)
}
