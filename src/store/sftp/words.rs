//! How restic calls ssh, and what ssh's complaints mean. Pure.

use std::path::{Path, PathBuf};

use crate::location::SftpLocation;
use crate::scan::ErrorClass;
use crate::store::fault::Fault;
use crate::store::program::{ProgramSpec, split_option};
use crate::store::{StoreError, StoreErrorKind, check_options};
use crate::target::ResticSpec;

/// restic `internal/backend/sftp/config.go`.
const OPTIONS: [&str; 4] = ["sftp.args", "sftp.command", "sftp.connections", "sftp.layout"];

/// Never ask for a password; give up on a host that is silent. An argument of the target's own
/// comes before these, and the first one counts with ssh.
const OURS: [&str; 8] = [
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ServerAliveInterval=15",
    "-o",
    "ServerAliveCountMax=2",
];

/// Where a service without a home folder finds ssh's files.
#[derive(Debug, Default)]
pub(in crate::store) struct SystemFiles {
    pub config: Option<PathBuf>,
    pub known_hosts: Option<PathBuf>,
}

/// The command line (restic `internal/backend/sftp/sftp.go` buildSSHCommand).
pub(super) fn command_line(
    at: &SftpLocation,
    spec: &ResticSpec,
    files: &SystemFiles,
) -> Result<ProgramSpec, StoreError> {
    let config = |doing: String, cause: &str| {
        StoreError::new(StoreErrorKind::Failed(ErrorClass::Config), doing, cause, "")
    };
    check_options(spec, "sftp.", &OPTIONS)?;
    let option = |name: &str| spec.options.get(name).filter(|value| !value.is_empty());
    let missing = "Install the package openssh-client.";
    if let Some(line) = option("sftp.command") {
        if option("sftp.args").is_some() {
            let cause = "it cannot be given together with sftp.args";
            return Err(config("read the option sftp.command".into(), cause));
        }
        let mut parts = split_option("sftp.command", line)?.into_iter();
        let program = parts.next().unwrap_or_default();
        let arguments = parts.collect();
        let (variables, hidden) = Default::default();
        return Ok(ProgramSpec { program, arguments, variables, hidden, missing });
    }
    let mut arguments = vec![at.host.clone()];
    if let Some(port) = at.port {
        arguments.extend(["-p".into(), port.to_string()]);
    }
    if let Some(user) = &at.user {
        arguments.extend(["-l".into(), user.clone()]);
    }
    if let Some(more) = option("sftp.args") {
        arguments.extend(split_option("sftp.args", more)?);
    }
    arguments.extend(OURS.map(str::to_owned));
    let shown = |path: &Path| path.display().to_string();
    if let Some(path) = &files.config {
        arguments.extend(["-F".into(), shown(path)]);
    }
    if let Some(path) = &files.known_hosts {
        arguments.extend(["-o".into(), format!("UserKnownHostsFile={}", shown(path))]);
    }
    arguments.extend(["-s".into(), "sftp".into()]);
    let (variables, hidden) = Default::default();
    Ok(ProgramSpec { program: "ssh".into(), arguments, variables, hidden, missing })
}

/// What ssh complains of, by a part of the line, and what it means.
const COMPLAINTS: &[(&str, ErrorClass, &str)] = &[
    (
        "host key is known for",
        ErrorClass::Config,
        "Add the host's key to known_hosts of the exporter's user, or to \
         /etc/lock-exporter/ssh/known_hosts, after comparing its fingerprint.",
    ),
    (
        "Host key verification failed",
        ErrorClass::Config,
        "The host's key is not the one in known_hosts: find out why before you change that.",
    ),
    (
        "UNPROTECTED PRIVATE KEY",
        ErrorClass::Config,
        "Make the private key readable for the exporter's user alone.",
    ),
    ("Bad owner or permissions", ErrorClass::Config, "Mend the rights of that file."),
    ("Bad configuration option", ErrorClass::Config, "Mend ssh's configuration."),
    ("unknown option", ErrorClass::Config, "Check the option sftp.args or sftp.command."),
    (
        "Permission denied (",
        ErrorClass::Auth,
        "Give the exporter's user a key that the account accepts; try the same ssh as that user.",
    ),
    ("Too many authentication failures", ErrorClass::Auth, "Name one key with IdentityFile."),
    (
        "subsystem request failed",
        ErrorClass::Protocol,
        "The account may not use sftp: check Subsystem and ForceCommand of its server.",
    ),
    (
        "This service allows sftp connections only",
        ErrorClass::Config,
        "The option sftp.command must ask for the subsystem: ssh HOST -s sftp.",
    ),
    ("Could not resolve hostname", ErrorClass::Network, "Check the host name."),
    ("Connection refused", ErrorClass::Network, "Check host and port; sftp://HOST:PORT/PATH."),
    ("No route to host", ErrorClass::Network, "Check host and firewall."),
    ("Network is unreachable", ErrorClass::Network, "Check host and network."),
    ("timed out", ErrorClass::Timeout, "Check host, port and firewall."),
    ("not responding", ErrorClass::Timeout, "Check the server: it no longer answers."),
    ("Connection reset", ErrorClass::Network, "Look into the log of the ssh server."),
    ("Connection closed by", ErrorClass::Network, "Look into the log of the ssh server."),
];

/// A connection that ended, by ssh's own words. Servers print banners, so the line that is known
/// comes first, else the last one.
pub fn complaint(lines: &[String]) -> Fault {
    for line in lines {
        if let Some((_, class, advice)) = COMPLAINTS.iter().find(|(part, ..)| line.contains(part)) {
            return Fault::new(*class, format!("ssh: {line}"), *advice);
        }
    }
    match lines.last() {
        Some(line) => Fault::new(ErrorClass::Other, format!("ssh: {line}"), ""),
        None => Fault::new(
            ErrorClass::Network,
            "ssh ended the connection without a word",
            "Try the same ssh as the exporter's user; a login that prints text breaks sftp.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::location::Location;
    use crate::secret::{EnvSpec, PasswordSpec};

    fn line(text: &str, options: &[(&str, &str)], files: &SystemFiles) -> Result<String, String> {
        let repository = Location::parse(text).expect("is a location");
        let Location::Sftp(at) = repository.clone() else { panic!("{text}") };
        let spec = ResticSpec {
            repository,
            password: PasswordSpec::Inherit,
            env: EnvSpec::default(),
            options: BTreeMap::from_iter(options.iter().map(|(k, v)| ((*k).into(), (*v).into()))),
            key_hint: None,
            cacert: Vec::new(),
            insecure_tls: false,
        };
        let made = command_line(&at, &spec, files).map_err(|error| error.to_string())?;
        Ok([vec![made.program], made.arguments].concat().join(" "))
    }

    #[test]
    fn ssh_is_called_as_restic_calls_it() {
        let none = SystemFiles::default();
        let ours = OURS.join(" ");
        for (text, options, want) in [
            ("sftp:host:/srv", &[][..], format!("ssh host {ours} -s sftp")),
            ("sftp:ann@b@host:x", &[], format!("ssh host -l ann@b {ours} -s sftp")),
            ("sftp://ann@[::1]:2222//srv", &[], format!("ssh ::1 -p 2222 -l ann {ours} -s sftp")),
            (
                "sftp:host:/srv",
                &[("sftp.args", "-i '/a b' -J jump")],
                format!("ssh host -i /a b -J jump {ours} -s sftp"),
            ),
            (
                "sftp:host:/srv",
                &[("sftp.command", "rsh \"x y\" -s sftp")],
                "rsh x y -s sftp".into(),
            ),
        ] {
            assert_eq!(line(text, options, &none), Ok(want), "{text}");
        }
        let files = SystemFiles {
            config: Some("/etc/lock-exporter/ssh/config".into()),
            known_hosts: Some("/etc/lock-exporter/ssh/known_hosts".into()),
        };
        let with_files = line("sftp:host:/srv", &[], &files).expect("is fine");
        assert!(
            with_files.contains("-F /etc/lock-exporter/ssh/config -o UserKnownHostsFile=/etc/")
        );
        for (options, word) in [
            (&[("sftp.command", "ssh"), ("sftp.args", "-v")][..], "together"),
            (&[("sftp.port", "22")], "no such option"),
            (&[("sftp.args", "'")], "sftp.args"),
        ] {
            let error = line("sftp:host:/srv", options, &none).expect_err(word);
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn the_line_that_says_why_is_found_behind_a_banner() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        for (said, class, shown) in [
            (
                "Welcome to host\nNo pets\nann@host: Permission denied (publickey).",
                ErrorClass::Auth,
                "ssh: ann@host: Permission denied (publickey).",
            ),
            ("a\nb", ErrorClass::Other, "ssh: b"),
            ("", ErrorClass::Network, "ssh ended the connection without a word"),
        ] {
            let fault = complaint(&lines(said));
            assert_eq!((fault.kind, fault.cause.as_str()), (StoreErrorKind::Failed(class), shown));
        }
    }
}
