//! `/proc/self/mountinfo` → the device and kind of the file system behind one mount.
//!
//! Pure. The kernel locks by the device of the superblock, which is what stands here; the device
//! that `stat` reports is another one on btrfs and on some overlays.

/// One mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Major number of the superblock's device.
    pub major: u32,
    /// Minor number of the superblock's device.
    pub minor: u32,
    /// Kind of file system, such as `ext4` or `fuse.sshfs`.
    pub kind: String,
}

/// File systems that other machines have too, or other programs than the kernel keep: their locks
/// are not all known to this kernel, nor their processes.
const REMOTE: &[&str] = &[
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "ceph",
    "glusterfs",
    "fuse",
    "fuseblk",
    "lustre",
    "gfs2",
    "ocfs2",
    "afs",
    "virtiofs",
    "vboxsf",
    "orangefs",
    "coda",
    "beegfs",
    "gpfs",
];

/// File systems on which a folder lists the numbers that the kernel locks by, each of one file.
const PLAIN: &[&str] = &["ext2", "ext3", "ext4", "xfs", "f2fs", "tmpfs"];

impl Mount {
    /// Whether locks may be held that this kernel does not know of: by other clients of a server,
    /// or inside a FUSE daemon.
    pub fn is_remote(&self) -> bool {
        self.kind.starts_with("fuse.") || REMOTE.contains(&self.kind.as_str())
    }

    /// Whether the numbers in a folder are those that the kernel locks by, each of one file.
    pub fn has_plain_numbers(&self) -> bool {
        PLAIN.contains(&self.kind.as_str())
    }

    /// Whether two files can share one device and number, as in two subvolumes.
    pub fn is_ambiguous(&self) -> bool {
        self.kind == "btrfs"
    }
}

/// The mount of this id. Lines look like
/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue` (proc(5));
/// the number of fields before the dash varies.
pub fn find(text: &[u8], mount: u64) -> Option<Mount> {
    text.split(|byte| *byte == b'\n').find_map(|line| {
        // Mount points may be no UTF-8; the fields that are wanted always are.
        let mut fields = line.split(|byte| *byte == b' ').map(std::str::from_utf8);
        if fields.next()?.ok()?.parse() != Ok(mount) {
            return None;
        }
        let (major, minor) = fields.nth(1)?.ok()?.split_once(':')?;
        let kind = fields.skip_while(|field| *field != Ok("-")).nth(1)?.ok()?;
        let (major, minor) = (major.parse().ok()?, minor.parse().ok()?);
        Some(Mount { major, minor, kind: kind.to_owned() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
        36 22 0:40 /sub /mnt\xff\\040x rw master:1 propagate_from:2 - btrfs /dev/vdb rw\n\
        40 22 0:52 / /home/u/remote rw - fuse.sshfs host: rw\n";

    #[test]
    fn a_mount_is_found_by_its_id() {
        let mount = find(TEXT, 22).unwrap();
        assert_eq!((mount.major, mount.minor, &*mount.kind), (254, 0, "ext4"));
        assert!(!mount.is_remote() && !mount.is_ambiguous());
        let mount = find(TEXT, 36).unwrap();
        assert_eq!((mount.major, mount.minor), (0, 40));
        assert!(mount.is_ambiguous());
        assert!(find(TEXT, 40).unwrap().is_remote());
        assert_eq!(find(TEXT, 2), None);
        assert_eq!(find(b"", 22), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_no_panic(text in prop::collection::vec(any::<u8>(), 0..500), id: u64) {
            find(&text, id);
        }
    }
}
