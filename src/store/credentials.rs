//! What signs requests to S3, looked for where restic looks and in its order: variables, profile
//! files, and the services that Amazon's machines and containers ask.
//!
//! Files are read when the store is opened by its first verb, so a rotated one is seen when the
//! old credentials are refused. Which requests are signed is not known here.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredentialProvider};
use object_store::{BackoffConfig, RetryConfig};
use zeroize::Zeroizing;

use super::client::secret_failed;
use super::fault::explain;
use super::http::Wire;
use super::{StoreError, StoreErrorKind};
use crate::scan::ErrorClass;
use crate::secret::{Environment, read_file};

pub mod answer;
mod issued;
mod process;
pub mod profile;
mod role;

use process::Process;
pub(super) use role::Role;

const CONFIG: StoreErrorKind = StoreErrorKind::Failed(ErrorClass::Config);
const DOING: &str = "find the S3 credentials";

/// How requests are signed.
#[derive(Clone)]
pub(super) enum Keys {
    Anonymous,
    Static {
        id: Zeroizing<String>,
        secret: Zeroizing<String>,
        token: Option<Zeroizing<String>>,
    },
    /// By credentials that are asked for, and again before they expire.
    Asked(AwsCredentialProvider),
}

/// What the variables of a target give, or where else they say to look.
pub(super) enum Source {
    Keys(Keys),
    Elsewhere(Box<Elsewhere>),
}

/// Where credentials are looked for when no variable holds any.
pub(super) struct Elsewhere {
    /// Files, and whether a variable names them.
    files: Vec<(PathBuf, bool)>,
    profile: Option<String>,
    /// For a program that a profile names.
    variables: Vec<(String, OsString)>,
    /// Settings of the services, each with its value.
    settings: Vec<(AmazonS3ConfigKey, Zeroizing<String>)>,
    /// Whether the variables name one of these services.
    named: bool,
    machine: bool,
}

impl Source {
    /// minio-go `pkg/credentials` EnvAWS and EnvMinio, in the order restic asks them.
    pub(super) fn of(environment: &Environment) -> Result<Self, StoreError> {
        let text = |name: &str| environment.text(name).map_err(secret_failed);
        let first = |names: [&str; 2]| -> Result<Option<Zeroizing<String>>, StoreError> {
            for name in names {
                if let Some(value) = text(name)? {
                    return Ok(Some(value));
                }
            }
            Ok(None)
        };
        let mut id = first(["AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY"])?;
        let mut secret = first(["AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY"])?;
        let token = text("AWS_SESSION_TOKEN")?;
        if id.is_none() && secret.is_none() {
            id = first(["MINIO_ROOT_USER", "MINIO_ACCESS_KEY"])?;
            secret = first(["MINIO_ROOT_PASSWORD", "MINIO_SECRET_KEY"])?;
        }
        let cause = match (id, secret) {
            (Some(id), Some(secret)) => {
                return checked(id, secret, token).map(Source::Keys);
            }
            (Some(_), None) => "AWS_ACCESS_KEY_ID is set, AWS_SECRET_ACCESS_KEY is not",
            (None, Some(_)) => "AWS_SECRET_ACCESS_KEY is set, AWS_ACCESS_KEY_ID is not",
            (None, None) => {
                return Ok(Source::Elsewhere(Box::new(Elsewhere::of(environment)?)));
            }
        };
        Err(StoreError::new(CONFIG, DOING, cause, ADVICE))
    }
}

const ADVICE: &str = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in env, env_file, env_dir or \
                      the exporter's own environment, name a profile by AWS_PROFILE, or for a \
                      public bucket set the option s3.unsafe-anonymous-auth=true.";

/// Keys go into headers as they are, and `object_store` panics on what cannot.
fn checked(
    id: Zeroizing<String>,
    secret: Zeroizing<String>,
    token: Option<Zeroizing<String>>,
) -> Result<Keys, StoreError> {
    let printable = |value: &str| value.bytes().all(|c| c.is_ascii_graphic());
    if [Some(&id), token.as_ref()].into_iter().flatten().all(|value| printable(value)) {
        return Ok(Keys::Static { id, secret, token });
    }
    Err(StoreError::new(
        CONFIG,
        DOING,
        "the access key id or the session token holds a blank or a letter beyond ASCII",
        "Check that they were copied whole, and not swapped with the secret.",
    ))
}

impl Elsewhere {
    fn of(environment: &Environment) -> Result<Self, StoreError> {
        let text = |name: &str| environment.text(name).map_err(secret_failed);
        let home = text("HOME")?;
        let mut files = Vec::new();
        for (variable, usual) in
            [("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config")]
        {
            match (text(variable)?, &home) {
                (Some(path), _) => files.push((PathBuf::from(path.as_str()), true)),
                (None, Some(home)) => {
                    files.push((PathBuf::from(home.as_str()).join(".aws").join(usual), false));
                }
                (None, None) => {}
            }
        }
        use AmazonS3ConfigKey as Key;
        let mut settings = Vec::new();
        for (variable, key) in [
            ("AWS_WEB_IDENTITY_TOKEN_FILE", Key::WebIdentityTokenFile),
            ("AWS_ROLE_ARN", Key::RoleArn),
            ("AWS_ROLE_SESSION_NAME", Key::RoleSessionName),
            ("AWS_ENDPOINT_URL_STS", Key::StsEndpoint),
            ("AWS_REGION", Key::Region),
            ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", Key::ContainerCredentialsRelativeUri),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", Key::ContainerCredentialsFullUri),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", Key::ContainerAuthorizationTokenFile),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", Key::MetadataEndpoint),
        ] {
            settings.extend(text(variable)?.map(|value| (key, value)));
        }
        let has = |key: Key| settings.iter().any(|(known, _)| *known == key);
        let named = has(Key::WebIdentityTokenFile) && has(Key::RoleArn)
            || has(Key::ContainerCredentialsRelativeUri)
            || has(Key::ContainerCredentialsFullUri) && has(Key::ContainerAuthorizationTokenFile);
        let machine = text("AWS_EC2_METADATA_DISABLED")?
            .is_none_or(|disabled| !disabled.eq_ignore_ascii_case("true"));
        let profile = text("AWS_PROFILE")?.map(|name| name.to_string());
        let variables = environment.for_program(|name| !name.starts_with("RESTIC_"));
        Ok(Self { files, profile, variables, settings, named, machine })
    }

    /// Reads the files; then the services are left, of which one is asked with the first request.
    pub(super) async fn keys(&self, wire: impl FnOnce(String) -> Wire) -> Result<Keys, StoreError> {
        if let Some(keys) = self.profile().await? {
            return Ok(keys);
        }
        let shown = self.files.iter().map(|(path, _)| path.display().to_string());
        let shown = shown.collect::<Vec<_>>().join(" and ");
        let tried = match shown.as_str() {
            "" => "neither AWS_ACCESS_KEY_ID nor AWS_SECRET_ACCESS_KEY is set".to_owned(),
            files => format!(
                "neither AWS_ACCESS_KEY_ID nor AWS_SECRET_ACCESS_KEY is set, and {files} hold none"
            ),
        };
        if !self.named && !self.machine {
            return Err(StoreError::new(CONFIG, DOING, tried, ADVICE));
        }
        // What no variable names is there at once or not at all.
        let retries = RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: usize::from(self.named),
            retry_timeout: Duration::from_secs(5),
        };
        let builder = AmazonS3Builder::new()
            .with_bucket_name("none")
            .with_retry(retries)
            .with_http_connector(wire(if self.named { String::new() } else { tried }));
        let builder = self
            .settings
            .iter()
            .fold(builder, |builder, (key, value)| builder.with_config(*key, value.as_str()));
        let asks = builder
            .build()
            .map_err(|error| StoreError::new(CONFIG, DOING, explain(&error).cause, ADVICE))?;
        Ok(Keys::Asked(asks.credentials().clone()))
    }

    /// minio-go `pkg/credentials` FileAWSCredentials, and Amazon's own second file.
    async fn profile(&self) -> Result<Option<Keys>, StoreError> {
        let name = self.profile.as_deref().unwrap_or("default");
        let mut found = profile::Profile::new();
        for (path, named) in &self.files {
            // Without a variable that names it, it need not be there.
            if !named && self.profile.is_none() && !is_there(path).await {
                continue;
            }
            let bytes = match read_file("profiles", path).await {
                Ok(bytes) => bytes,
                // One of the two is enough.
                Err(_) if !named && !is_there(path).await => continue,
                Err(error) => return Err(secret_failed(error)),
            };
            let text = Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned());
            for (key, value) in profile::find(&text, name).unwrap_or_default() {
                found.entry(key).or_insert(value);
            }
        }
        let mut take = |key: &str| found.remove(key);
        if let (Some(id), Some(secret)) = (take("aws_access_key_id"), take("aws_secret_access_key"))
        {
            return checked(id, secret, take("aws_session_token")).map(Some);
        }
        if let Some(line) = take("credential_process") {
            let process = Process::of(&line, self.variables.clone())?;
            return Ok(Some(Keys::Asked(Arc::new(process))));
        }
        if self.profile.is_none() {
            return Ok(None);
        }
        let cause = format!("the profile {name} has neither keys nor credential_process");
        Err(StoreError::new(
            CONFIG,
            DOING,
            cause,
            "For a profile with single sign-on or a role, make one with credential_process = aws \
             configure export-credentials --profile NAME --format process.",
        ))
    }
}

async fn is_there(path: &std::path::Path) -> bool {
    tokio::fs::try_exists(path).await.unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    #[test]
    fn missing_keys_are_told_by_name_and_never_shown() {
        let of = |variables: &[(&str, &str)]| {
            Source::of(&Environment::only(
                variables.iter().map(|(name, value)| (name.to_string(), Secret::new(*value))),
            ))
        };
        let id = ("AWS_ACCESS_KEY_ID", "AKIA");
        for (variables, cause) in [
            (vec![id], "AWS_SECRET_ACCESS_KEY is not"),
            (vec![("AWS_SECRET_KEY", "planted")], "AWS_ACCESS_KEY_ID is not"),
            (vec![id, ("AWS_SECRET_ACCESS_KEY", "planted\n")], "line break"),
            (vec![("AWS_ACCESS_KEY_ID", "planted ü"), ("AWS_SECRET_KEY", "x")], "beyond ASCII"),
            (
                vec![id, ("AWS_SECRET_KEY", "x"), ("AWS_SESSION_TOKEN", "plantéd planted")],
                "beyond ASCII",
            ),
        ] {
            let error = of(&variables).err().expect("is incomplete");
            assert_eq!(error.kind, CONFIG);
            assert!(error.cause.contains(cause), "{error}");
            assert!(!format!("{error:?}").contains("planted"), "{error:?}");
        }
        assert!(of(&[("AWS_ACCESS_KEY", "a"), ("AWS_SECRET_KEY", "b")]).is_ok());
        assert!(of(&[("MINIO_ROOT_USER", "a"), ("MINIO_ROOT_PASSWORD", "b")]).is_ok());
    }
}
