//! Taking a new configuration into use while running, whole or not at all.
//!
//! Targets whose specification did not change keep their reader, their keys and their history;
//! everything else follows the new set of targets on its watch channel. A configuration with a
//! fault changes nothing and is visible in metric, log and answer.

use std::pin::Pin;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::{oneshot, watch};

use crate::config::Config;
use crate::exposition::metrics::{Exporter, Rules};
use crate::roster::Roster;

/// Reads the configuration from where it came from at the start.
pub type Load<'a> = dyn Fn() -> Pin<Box<dyn Future<Output = anyhow::Result<Config>> + Send + 'a>>
    + Send
    + Sync
    + 'a;

/// A wish to reload, and where the result is awaited: an error in words.
pub type Wish = oneshot::Sender<Result<(), String>>;

/// What renderers need of the configuration and of its state.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How metrics are rendered.
    pub rules: Arc<Rules>,
    /// Facts about this process.
    pub exporter: Exporter,
    /// The configuration in use.
    pub config: Arc<Config>,
    /// The last configuration that was refused, until one is taken into use.
    pub refused: Option<Refused>,
}

/// A configuration that was not taken into use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// When.
    pub at: Timestamp,
    /// What is wrong with it, in words.
    pub error: Arc<str>,
}

/// Owns the senders of everything that follows the configuration.
pub struct Reloader<'a> {
    /// Reads the configuration again.
    pub load: &'a Load<'a>,
    /// How its metrics are rendered.
    pub rules: fn(&Config) -> Rules,
    /// The configuration in use.
    pub current: Config,
    /// Followed by scanner and tracker.
    pub roster: Arc<Roster>,
    /// Followed by the server.
    pub settings: watch::Sender<Settings>,
}

impl Reloader<'_> {
    /// Takes the configuration into use as it is now, at `now`.
    ///
    /// # Errors
    /// What is wrong with it, in words; the old one stays in use then.
    pub async fn reload(&mut self, now: Timestamp) -> Result<(), String> {
        let config = match (self.load)().await {
            Ok(config) => config,
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(%error, "configuration not reloaded; the old one stays in use");
                self.settings.send_modify(|settings| {
                    settings.exporter.reload_successful = false;
                    settings.refused = Some(Refused { at: now, error: error.as_str().into() });
                });
                return Err(error);
            }
        };
        if config.scan.concurrency != self.current.scan.concurrency {
            tracing::warn!("scan.concurrency takes effect at the next start");
        }
        let before = self.roster.targets();
        self.roster.configure(config.targets.clone());
        let set = self.roster.targets();
        let kept = set.iter().filter(|spec| before.get(&spec.name) == Some(*spec)).count();
        tracing::info!(
            targets = set.len(),
            unchanged = kept,
            new = set.iter().filter(|spec| before.get(&spec.name).is_none()).count(),
            gone = before.iter().filter(|spec| set.get(&spec.name).is_none()).count(),
            "configuration reloaded"
        );
        self.settings.send_modify(|settings| {
            settings.rules = Arc::new((self.rules)(&config));
            settings.exporter.reload_successful = true;
            settings.exporter.reload_success_at = now;
            settings.config = Arc::new(config.clone());
            settings.refused = None;
        });
        self.current = config;
        Ok(())
    }
}
