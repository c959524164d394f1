//! What a person can do about a failure, where that differs between backends. Texts only.

use std::borrow::Cow;

use super::StoreErrorKind;
use super::fault::Fault;
use crate::scan::ErrorClass;

/// The next steps of one backend; full sentences.
#[derive(Debug)]
pub(super) struct Advice {
    /// The credentials are not accepted.
    pub auth: &'static str,
    /// They may not do this.
    pub permission: &'static str,
    /// The bucket or container is not there.
    pub container: &'static str,
    /// What answers is something else.
    pub service: &'static str,
    /// The certificate.
    pub tls: &'static str,
}

const TLS: &str = "Check the host name and the certificate; a private authority is named by \
                   cacert or RESTIC_CACERT.";

pub(super) const S3: Advice = Advice {
    auth: "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN of this target.",
    permission: "Allow s3:ListBucket on the bucket, and s3:GetObject on config, keys/* and \
                 locks/*.",
    container: "Check the bucket's name; the first part of an s3: string is the host.",
    service: "Check that host and port are those of the S3 service.",
    tls: "Check the host name and the certificate; a private authority is named by cacert or \
          RESTIC_CACERT, and a server without TLS by s3:http://.",
};

pub(super) const AZURE: Advice = Advice {
    auth: "Check AZURE_ACCOUNT_NAME, AZURE_ACCOUNT_KEY or AZURE_ACCOUNT_SAS of this target, and \
           whether the signature has expired.",
    permission: "Allow to read and to list: a SAS needs sp=rl on the container, an identity the \
                 role Storage Blob Data Reader.",
    container: "Check the container's name; write azure:CONTAINER:/PREFIX.",
    service: "Check AZURE_ACCOUNT_NAME and AZURE_ENDPOINT_SUFFIX.",
    tls: TLS,
};

pub(super) const GS: Advice = Advice {
    auth: "Check GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_ACCESS_TOKEN of this target; an access \
           token lives for an hour.",
    permission: "Allow storage.objects.list and storage.objects.get on the bucket (role Storage \
                 Object Viewer).",
    container: "Check the bucket's name; write gs:BUCKET:/PREFIX.",
    service: "Check that no proxy answers for the service.",
    tls: TLS,
};

pub(super) const REST: Advice = Advice {
    auth: "Check RESTIC_REST_USERNAME and RESTIC_REST_PASSWORD; on a server with --private-repos \
           the path begins with the user's name.",
    permission: "Let the user read this repository.",
    container: "Check the path; a REST server has repositories at most two folders deep.",
    service: "Check that host, port and path are those of the REST server, and that no login \
              page or proxy stands before it.",
    tls: "Check the host name and the certificate; a private authority is named by cacert or \
          RESTIC_CACERT, and a server without TLS by rest:http://.",
};

pub(super) const RCLONE: Advice = Advice {
    auth: "Check the credentials of the remote.",
    permission: "Let the remote's credentials list and read.",
    container: "Check the path; `rclone lsf REMOTE:PATH` shows what is there.",
    service: "Try `rclone lsf` with the same remote as the exporter's user.",
    tls: "",
};

/// Where every fault has its own advice.
pub(super) const NONE: Advice =
    Advice { auth: "", permission: "", container: "", service: "", tls: "" };

impl Advice {
    /// Adds the advice that fits the kind, where the fault has none of its own.
    pub(super) fn complete(&self, fault: Fault) -> Fault {
        if !fault.advice.is_empty() {
            return fault;
        }
        let advice = match fault.kind {
            StoreErrorKind::Failed(ErrorClass::Auth) => self.auth,
            StoreErrorKind::Failed(ErrorClass::Permission) => self.permission,
            StoreErrorKind::Failed(ErrorClass::Protocol) => self.service,
            StoreErrorKind::Failed(ErrorClass::Tls) => self.tls,
            _ => "",
        };
        Fault { advice: Cow::Borrowed(advice), ..fault }
    }
}
