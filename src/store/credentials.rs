//! What signs requests to S3: the keys that a target's variables give, with restic's names.
//!
//! Profiles and the metadata services of clouds are not read yet; a target without keys says so
//! at once instead of waiting for a service that is not there.

use zeroize::Zeroizing;

use super::client::secret_failed;
use super::{StoreError, StoreErrorKind};
use crate::scan::ErrorClass;
use crate::secret::Environment;

const CONFIG: StoreErrorKind = StoreErrorKind::Failed(ErrorClass::Config);

/// How requests are signed.
pub(super) enum Keys {
    Anonymous,
    Static { id: Zeroizing<String>, secret: Zeroizing<String>, token: Option<Zeroizing<String>> },
}

impl Keys {
    /// minio-go `pkg/credentials` EnvAWS and EnvMinio, in the order restic asks them.
    pub(super) fn of(environment: &Environment) -> Result<Self, StoreError> {
        let first = |names: [&str; 2]| -> Result<Option<Zeroizing<String>>, StoreError> {
            for name in names {
                if let Some(value) = environment.text(name).map_err(secret_failed)? {
                    return Ok(Some(value));
                }
            }
            Ok(None)
        };
        let mut id = first(["AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY"])?;
        let mut secret = first(["AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY"])?;
        let token = environment.text("AWS_SESSION_TOKEN").map_err(secret_failed)?;
        if id.is_none() && secret.is_none() {
            id = first(["MINIO_ROOT_USER", "MINIO_ACCESS_KEY"])?;
            secret = first(["MINIO_ROOT_PASSWORD", "MINIO_SECRET_KEY"])?;
        }
        // They go into headers as they are, and `object_store` panics on what cannot.
        let printable = |value: &str| value.bytes().all(|c| c.is_ascii_graphic());
        if !id.iter().chain(&token).all(|value| printable(value)) {
            return Err(StoreError::new(
                CONFIG,
                "find the S3 credentials",
                "the access key id or the session token holds a blank or a letter beyond ASCII",
                "Check that they were copied whole, and not swapped with the secret.",
            ));
        }
        let cause = match (id, secret) {
            (Some(id), Some(secret)) => return Ok(Keys::Static { id, secret, token }),
            (Some(_), None) => "AWS_ACCESS_KEY_ID is set, AWS_SECRET_ACCESS_KEY is not",
            (None, Some(_)) => "AWS_SECRET_ACCESS_KEY is set, AWS_ACCESS_KEY_ID is not",
            (None, None) => "neither AWS_ACCESS_KEY_ID nor AWS_SECRET_ACCESS_KEY is set",
        };
        Err(StoreError::new(
            CONFIG,
            "find the S3 credentials",
            cause,
            "Set both in env, env_file, env_dir or the exporter's own environment (profiles and \
             instance roles are not supported yet), or for a public bucket the option \
             s3.unsafe-anonymous-auth=true.",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    #[test]
    fn missing_keys_are_told_by_name_and_never_shown() {
        let of = |variables: &[(&str, &str)]| {
            Keys::of(&Environment::only(
                variables.iter().map(|(name, value)| (name.to_string(), Secret::new(*value))),
            ))
        };
        let id = ("AWS_ACCESS_KEY_ID", "AKIA");
        for (variables, cause) in [
            (vec![], "neither"),
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
