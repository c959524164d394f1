//! Who listens on a TCP port of this machine, as far as this process may see it.
#![allow(clippy::disallowed_methods, reason = "this module reads /proc")]

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// Largest table of sockets that is read.
const TABLE_BYTES_MAX: u64 = 16 << 20;
/// The state of a socket that listens (Linux `include/net/tcp_states.h` TCP_LISTEN).
const LISTEN: &str = "0A";

/// What is known of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listens {
    /// Nobody listens there.
    Nobody,
    /// This process does.
    Process {
        /// Its number.
        pid: u32,
        /// Its name, as it calls itself.
        name: String,
    },
    /// Somebody whom only others may see.
    Unseen,
}

/// Who listens on a port. Looks at every process that may be looked at.
pub fn of_port(procfs: &Path, port: u16) -> Listens {
    let tables = ["tcp", "tcp6"].map(|name| table(&procfs.join("net").join(name)));
    let inodes: Vec<_> = tables.iter().flat_map(|table| listening(table, port)).collect();
    if inodes.is_empty() {
        return Listens::Nobody;
    }
    let sockets: Vec<_> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let Ok(processes) = fs::read_dir(procfs) else { return Listens::Unseen };
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(files) = fs::read_dir(process.path().join("fd")) else { continue };
        let has_it = files
            .flatten()
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()));
        if has_it {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Listens::Process { pid, name: name.trim().to_owned() };
        }
    }
    Listens::Unseen
}

fn table(path: &Path) -> String {
    let mut text = String::new();
    if let Ok(file) = File::open(path) {
        let _ = file.take(TABLE_BYTES_MAX).read_to_string(&mut text);
    }
    text
}

/// Inodes of the sockets that listen on a port (Linux `Documentation/networking/proc_net_tcp.rst`).
fn listening(table: &str, port: u16) -> impl Iterator<Item = &str> {
    let ending = format!(":{port:04X}");
    table.lines().skip(1).filter_map(move |line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, _, state) = (fields.next()?, fields.next()?, fields.next()?);
        let inode = fields.nth(5)?;
        (local.ends_with(&ending) && state == LISTEN).then_some(inode)
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn only_sockets_that_listen_on_the_port_count() {
        let table = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2792 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1 0
   1: 0100007F:2792 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 4343 1 0
   2: 0100007F:2793 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4444 1 0
   3: cut
";
        assert_eq!(listening(table, 10130).collect::<Vec<_>>(), ["4242"]);
        assert_eq!(listening("", 10130).count(), 0);
    }

    #[test]
    fn a_listener_of_our_own_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = of_port(Path::new("/proc"), port);
        let Listens::Process { pid, .. } = seen else { panic!("{seen:?}") };
        assert_eq!(pid, std::process::id());
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(of_port(folder.path(), port), Listens::Nobody);
    }
}
