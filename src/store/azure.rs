//! Azure: restic's variables for it, as something that can be built (restic
//! `internal/backend/azure`).

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use object_store::ObjectStore;
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use zeroize::Zeroizing;

use super::cloud::{Plan, Wires};
use super::{StoreError, StoreErrorKind};
use crate::location::CloudLocation;
use crate::scan::ErrorClass;
use crate::secret::{Environment, Secret};

pub(super) const OPTIONS: [&str; 3] = ["azure.access-tier", "azure.connections", "azure.layout"];

/// The account of the emulator Azurite, which listens on this machine.
const EMULATOR: &str = "devstoreaccount1";
const EMULATOR_URL: &str = "http://127.0.0.1:10000";

/// What the variables say.
pub(super) struct Azure {
    container: String,
    account: String,
    endpoint: String,
    login: Login,
}

/// How the account is entered, in the order in which restic looks.
enum Login {
    Key(Zeroizing<String>),
    Signature(Zeroizing<String>),
    CommandLine,
    /// What Azure's own libraries take from their variables; without any the managed identity of
    /// the machine.
    Identity(Vec<(AzureConfigKey, Zeroizing<String>)>),
}

impl fmt::Debug for Azure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Azure({}/{})", self.account, self.container)
    }
}

impl Azure {
    pub(super) fn of(at: &CloudLocation, environment: &Environment) -> Result<Self, StoreError> {
        let config = |doing: &str, cause: &str, advice: &str| {
            StoreError::new(StoreErrorKind::Failed(ErrorClass::Config), doing, cause, advice)
        };
        let variable = |name: &str| environment.text(name).map_err(super::client::secret_failed);
        let account = variable("AZURE_ACCOUNT_NAME")?.ok_or_else(|| {
            let advice = "Set it in env, env_file, env_dir or the exporter's own environment.";
            config("find the Azure account", "AZURE_ACCOUNT_NAME is not set", advice)
        })?;
        let named = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if !account.chars().all(named) {
            let cause = "AZURE_ACCOUNT_NAME holds what no account's name can";
            return Err(config("find the Azure account", cause, ""));
        }
        let endpoint = match variable("AZURE_ENDPOINT_SUFFIX")? {
            None if *account == EMULATOR => {
                let url = variable("AZURITE_BLOB_STORAGE_URL")?;
                let url = url.as_ref().map_or(EMULATOR_URL, |url| url.trim_end_matches('/'));
                format!("{url}/{EMULATOR}")
            }
            suffix => {
                let suffix = suffix.as_ref().map_or("core.windows.net", |suffix| suffix.as_str());
                format!("https://{}.blob.{suffix}", *account)
            }
        };
        if endpoint.parse::<hyper::Uri>().is_err() || url::Url::parse(&endpoint).is_err() {
            let cause = "AZURE_ENDPOINT_SUFFIX and the account make no host name";
            return Err(config("find the Azure service", cause, ""));
        }
        let login = if let Some(key) = variable("AZURE_ACCOUNT_KEY")? {
            // The library's words would quote of it.
            if BASE64.decode(key.as_bytes()).is_err() {
                return Err(config("read the account key", "AZURE_ACCOUNT_KEY is no base64", ""));
            }
            Login::Key(key)
        } else if let Some(signature) = variable("AZURE_ACCOUNT_SAS")? {
            Login::Signature(Zeroizing::new(signature.trim_start_matches('?').to_owned()))
        } else if variable("AZURE_FORCE_CLI_CREDENTIAL")?.is_some_and(|value| *value == "true") {
            Login::CommandLine
        } else {
            let mut found = Vec::new();
            for (name, key) in [
                ("AZURE_CLIENT_ID", AzureConfigKey::ClientId),
                ("AZURE_CLIENT_SECRET", AzureConfigKey::ClientSecret),
                ("AZURE_TENANT_ID", AzureConfigKey::AuthorityId),
                ("AZURE_AUTHORITY_HOST", AzureConfigKey::AuthorityHost),
                ("AZURE_FEDERATED_TOKEN_FILE", AzureConfigKey::FederatedTokenFile),
                ("IDENTITY_ENDPOINT", AzureConfigKey::MsiEndpoint),
            ] {
                found.extend(variable(name)?.map(|value| (key, value)));
            }
            Login::Identity(found)
        };
        let (container, account) = (at.container.clone(), account.to_string());
        Ok(Self { container, account, endpoint, login })
    }
}

impl Plan for Azure {
    fn plain_http(&self) -> bool {
        self.endpoint.starts_with("http://")
    }

    fn hidden(&self) -> Vec<Secret> {
        match &self.login {
            Login::Key(value) | Login::Signature(value) => vec![Secret::new(value.as_bytes())],
            Login::CommandLine | Login::Identity(_) => Vec::new(),
        }
    }

    fn tried(&self) -> String {
        match &self.login {
            Login::Identity(found) if found.is_empty() => {
                "neither AZURE_ACCOUNT_KEY nor AZURE_ACCOUNT_SAS nor AZURE_CLIENT_ID is set".into()
            }
            _ => String::new(),
        }
    }

    fn credentials_file(&self) -> Option<&str> {
        // The file of a federated token is read by a request.
        None
    }

    fn build(&self, wires: &Wires) -> object_store::Result<Arc<dyn ObjectStore>> {
        let builder = MicrosoftAzureBuilder::new()
            .with_account(&self.account)
            .with_container_name(&self.container)
            .with_endpoint(self.endpoint.clone())
            .with_allow_http(self.plain_http())
            .with_retry(wires.limits.retries())
            .with_http_connector(wires.store.clone());
        let builder = match &self.login {
            Login::Key(key) => builder.with_access_key(key.as_str()),
            Login::Signature(sas) => builder.with_config(AzureConfigKey::SasKey, sas.as_str()),
            Login::CommandLine => builder.with_use_azure_cli(true),
            Login::Identity(found) => {
                let asks = found.iter().fold(builder.clone(), |builder, (key, value)| {
                    builder.with_config(*key, value.as_str())
                });
                let asks = asks.with_http_connector(wires.credentials.clone()).build()?;
                builder.with_credentials(asks.credentials().clone())
            }
        };
        Ok(Arc::new(builder.build()?))
    }
}
