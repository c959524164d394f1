//! A role that the credentials found may take on: restic's `RESTIC_AWS_ASSUME_ROLE_*`.
//!
//! Amazon's Security Token Service, or one like it, issues credentials for the role, for an hour.
//! Where the first credentials come from is not known here.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::aws::{AwsAuthorizer, AwsCredential, AwsCredentialProvider};
use object_store::client::{HttpRequest, HttpService};
use url::{Url, form_urlencoded};
use zeroize::Zeroizing;

use super::answer::Answer;
use super::issued::{Issued, Last};
use super::{CONFIG, DOING, Keys};
use crate::scan::ErrorClass;
use crate::secret::Environment;
use crate::store::StoreError;
use crate::store::client::secret_failed;
use crate::store::fault::{Fault, Hints, explain, refusal};
use crate::store::http::{Count, REFUSAL_BYTES_MAX, collect};
use crate::store::s3::{REGION, hidden};
use crate::telemetry::{Operation, Telemetry};

/// Seconds for which a role is taken on (minio-go `pkg/credentials/assume_role.go`).
const SECONDS: &str = "3600";
/// Amazon wants a name for what it writes down of each use.
const SESSION: &str = "lock_exporter";
const ADVICE: &str = "Check that the credentials of this target may assume the role in \
                      RESTIC_AWS_ASSUME_ROLE_ARN, with RESTIC_AWS_ASSUME_ROLE_EXTERNAL_ID where \
                      the role wants one.";

/// What is asked for, and whom.
#[derive(Clone)]
pub(in crate::store) struct Role {
    endpoint: Url,
    region: String,
    /// The form of the request.
    form: Zeroizing<String>,
}

impl Role {
    /// restic `internal/backend/s3/s3.go` getCredentials; `region` is that of the bucket, where one
    /// is named. None: no role is.
    pub(in crate::store) fn of(
        environment: &Environment,
        region: Option<&str>,
    ) -> Result<Option<Self>, StoreError> {
        let text = |name: &str| {
            environment.text(&format!("RESTIC_AWS_ASSUME_ROLE_{name}")).map_err(secret_failed)
        };
        let Some(arn) = text("ARN")? else { return Ok(None) };
        let region = text("REGION")?.map(|text| text.to_string()).or(region.map(str::to_owned));
        let endpoint = match (text("STS_ENDPOINT")?, &region) {
            (Some(endpoint), _) => endpoint.to_string(),
            (None, Some(region)) if region.starts_with("cn-") => {
                format!("https://sts.{region}.amazonaws.com.cn")
            }
            (None, Some(region)) => format!("https://sts.{region}.amazonaws.com"),
            (None, None) => "https://sts.amazonaws.com".to_owned(),
        };
        let endpoint = Url::parse(&endpoint)
            .ok()
            .filter(|url| url.has_host() && matches!(url.scheme(), "http" | "https"))
            .ok_or_else(|| {
                let cause = "RESTIC_AWS_ASSUME_ROLE_STS_ENDPOINT is no http or https address";
                StoreError::new(CONFIG, DOING, cause, "Write https://HOST, or leave it out.")
            })?;
        let session = text("SESSION_NAME")?;
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("Action", "AssumeRole")
            .append_pair("Version", "2011-06-15")
            .append_pair("DurationSeconds", SECONDS)
            .append_pair("RoleArn", &arn)
            .append_pair("RoleSessionName", session.as_ref().map_or(SESSION, |name| name));
        for (field, name) in [("ExternalId", "EXTERNAL_ID"), ("Policy", "POLICY")] {
            if let Some(value) = text(name)? {
                form.append_pair(field, &value);
            }
        }
        let region = region.unwrap_or_else(|| REGION.to_owned());
        Ok(Some(Self { endpoint, region, form: Zeroizing::new(form.finish()) }))
    }

    /// The role's credentials instead of those that may take it on.
    pub(in crate::store) fn with(
        self,
        keys: Keys,
        client: Arc<reqwest::Client>,
        telemetry: Arc<Telemetry>,
    ) -> Keys {
        match keys {
            Keys::Anonymous => Keys::Anonymous,
            keys => {
                let last = Last::default();
                Keys::Asked(Arc::new(Assumed { role: self, keys, client, telemetry, last }))
            }
        }
    }
}

struct Assumed {
    role: Role,
    keys: Keys,
    client: Arc<reqwest::Client>,
    telemetry: Arc<Telemetry>,
    last: Last,
}

impl fmt::Debug for Assumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Assumed({})", self.role.endpoint)
    }
}

impl Assumed {
    async fn ask(&self) -> Result<Issued, Fault> {
        let own: Arc<AwsCredential> = match &self.keys {
            Keys::Static { id, secret, token } => Arc::new(AwsCredential {
                key_id: id.to_string(),
                secret_key: secret.to_string(),
                token: token.as_ref().map(|token| token.to_string()),
            }),
            Keys::Asked(provider) => issued_by(provider).await?,
            Keys::Anonymous => return Err(Fault::new(ErrorClass::Config, "no credentials", "")),
        };
        let Role { endpoint, region, form } = &self.role;
        let host = endpoint.host_str().unwrap_or_default();
        let fault =
            |fault: Fault| Fault::of(fault.kind, format!("{host}: {}", fault.cause), ADVICE);
        let internal = || Fault::new(ErrorClass::Internal, "make a request", "");
        let mut request: HttpRequest = hyper::Request::post(endpoint.as_str())
            .header("content-type", "application/x-www-form-urlencoded; charset=utf-8")
            .body(form.as_bytes().to_vec().into())
            .map_err(|_| internal())?;
        AwsAuthorizer::new(&own, "sts", region)
            .try_authorize(&mut request, None)
            .map_err(|_| internal())?;
        let mut count = Count::begin(&self.telemetry, "s3", Operation::Credentials);
        let response = HttpService::call(&*self.client, request).await;
        let response = response.map_err(|error| fault(explain(&error)))?;
        let status = response.status();
        let body = collect(response.into_body(), REFUSAL_BYTES_MAX).await;
        let body = Zeroizing::new(body.map_err(|error| fault(explain(&error)))?.to_vec());
        if !status.is_success() {
            return Err(fault(
                refusal(status.as_u16(), Hints::default(), &body, &hidden(&self.keys)).fault,
            ));
        }
        let Some(answer) = Answer::of_service(&body) else {
            return Err(fault(Fault::new(ErrorClass::Protocol, "an answer without keys", "")));
        };
        let issued = Issued::of(host, answer)?;
        count.failed = false;
        Ok(issued)
    }
}

async fn issued_by(provider: &AwsCredentialProvider) -> Result<Arc<AwsCredential>, Fault> {
    provider.get_credential().await.map_err(|error| explain(&error))
}

#[async_trait]
impl CredentialProvider for Assumed {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        self.last.or_ask(async || self.ask().await).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    fn role(variables: &[(&str, &str)], region: Option<&str>) -> Result<Option<Role>, StoreError> {
        let variables = variables
            .iter()
            .map(|(name, value)| (format!("RESTIC_AWS_ASSUME_ROLE_{name}"), Secret::new(*value)));
        Role::of(&Environment::only(variables), region)
    }

    #[test]
    fn the_service_is_that_of_the_region() {
        let arn = ("ARN", "arn:aws:iam::1:role/x");
        for (variables, region, endpoint, signed_for) in [
            (vec![arn], None, "https://sts.amazonaws.com/", "us-east-1"),
            (vec![arn], Some("eu-west-1"), "https://sts.eu-west-1.amazonaws.com/", "eu-west-1"),
            (
                vec![arn],
                Some("cn-north-1"),
                "https://sts.cn-north-1.amazonaws.com.cn/",
                "cn-north-1",
            ),
            (
                vec![arn, ("REGION", "eu-north-1")],
                Some("eu-west-1"),
                "https://sts.eu-north-1.amazonaws.com/",
                "eu-north-1",
            ),
            (
                vec![arn, ("STS_ENDPOINT", "http://sts.local:9")],
                None,
                "http://sts.local:9/",
                "us-east-1",
            ),
        ] {
            let role = role(&variables, region).expect("is complete").expect("is named");
            assert_eq!((role.endpoint.as_str(), role.region.as_str()), (endpoint, signed_for));
        }
        assert!(role(&[("SESSION_NAME", "x")], None).expect("is fine").is_none(), "no role");
        for endpoint in ["sts.local", "ftp://sts.local", "http://"] {
            let error = role(&[arn, ("STS_ENDPOINT", endpoint)], None).err().expect("is refused");
            assert!(error.to_string().contains("STS_ENDPOINT"), "{error}");
        }
    }

    #[test]
    fn all_that_restic_sends_is_sent() {
        let named = [
            ("ARN", "arn:aws:iam::1:role/x y"),
            ("SESSION_NAME", "nightly"),
            ("EXTERNAL_ID", "a&b"),
            ("POLICY", "{}"),
        ];
        let role = role(&named, None).expect("is complete").expect("is named");
        let form: Vec<_> = form_urlencoded::parse(role.form.as_bytes()).into_owned().collect();
        let has = |name: &str, value: &str| form.contains(&(name.to_owned(), value.to_owned()));
        assert!(
            has("Action", "AssumeRole") && has("RoleArn", "arn:aws:iam::1:role/x y"),
            "{form:?}"
        );
        assert!(
            has("RoleSessionName", "nightly") && has("ExternalId", "a&b") && has("Policy", "{}")
        );
    }
}
