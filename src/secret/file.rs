//! Reads one small file that a person named, bounded and without ever waiting for a pipe.

#![allow(clippy::disallowed_methods, reason = "this module reads files")]

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use zeroize::Zeroizing;

use super::SecretError;

/// No file of variables, password or key is longer.
pub(super) const BYTES_MAX: u64 = 256 * 1024;

/// The whole content of a regular file; `what` names it in errors.
pub(crate) fn read(what: &str, path: &Path) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    let fail = |error: std::io::Error| {
        SecretError::file(what, path, error.to_string(), advice(error.kind()))
    };
    // Without O_NONBLOCK the open of a pipe would wait for its writer.
    let file = File::options()
        .read(true)
        .custom_flags((OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY).bits() as i32)
        .open(path)
        .map_err(fail)?;
    if !file.metadata().map_err(fail)?.is_file() {
        return Err(SecretError::file(
            what,
            path,
            "not a regular file",
            "Name a regular file; it is read again whenever the target is opened.",
        ));
    }
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(SecretError::file(
            what,
            path,
            format!("more than {BYTES_MAX} bytes"),
            "Check that this is the right file.",
        ));
    }
    Ok(bytes)
}

pub(super) fn advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "Check the path, and that it is mounted where the exporter runs.",
        ErrorKind::PermissionDenied => "Make it readable for the user that the exporter runs as.",
        _ => "",
    }
}
