//! The part of the configuration that speaks of lock files.

use std::path::PathBuf;

use super::reader::{Reader, join};
use super::tree::Node;
use crate::pattern::Glob;
use crate::target::{FileFormat, FileSpec, Role, SourceSpec};

const FORMATS: [FileFormat; 3] = [FileFormat::Kernel, FileFormat::Pid, FileFormat::Exists];

impl Reader {
    /// What stands under `file`.
    pub fn lock_file(&mut self, node: &Node, path: &str) -> Option<SourceSpec> {
        let mut map = self.map(node, path);
        let place = map.take("path").map(|node| (node, self.text(node, &join(path, "path"))));
        let mut role = Role::default();
        if let Some(node) = map.take("role") {
            let key = join(path, "role");
            match self.text(node, &key).as_deref() {
                Some("job") => role = Role::Job,
                Some("daemon") => role = Role::Daemon,
                Some(_) => self.problem(node, &key, "must be job or daemon"),
                None => {}
            }
        }
        let mut format = FileFormat::default();
        if let Some(node) = map.take("format") {
            let key = join(path, "format");
            let text = self.text(node, &key).unwrap_or_default();
            match FORMATS.into_iter().find(|format| format.as_str() == text) {
                Some(known) => format = known,
                None => self.problem(node, &key, "must be kernel, pid or exists"),
            }
        }
        let max = map.take("max");
        let most = self.files_max(max, path);
        self.finish(map, &["path", "role", "format", "max"]);
        let Some((node_of_path, text)) = place else {
            self.problem(node, path, "needs path: the lock file");
            return None;
        };
        let text = text?;
        let key = join(path, "path");
        if !text.starts_with('/') {
            self.problem(
                node_of_path,
                &key,
                "must be absolute: it must not depend on where we run",
            );
            return None;
        }
        let spec = FileSpec { path: PathBuf::from(&text), role, format };
        if Glob::is_meant(&text) {
            return self.glob(node_of_path, &key, spec, most).map(SourceSpec::Search);
        }
        if let Some(max) = max {
            self.problem(max, &join(path, "max"), "is for a pattern, and path is none");
        }
        Some(SourceSpec::File(spec))
    }
}
