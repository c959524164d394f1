//! The part of the configuration that speaks of restic repositories: how to reach and open one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::reader::{Map, Reader, join};
use super::search::Searched;
use super::tree::{Node, Value};
use super::{Named, Surroundings};
use crate::location::Location;
use crate::secret::{EnvSpec, PasswordSpec, Secret};
use crate::target::{ResticSpec, SourceSpec};

/// A key that says how a repository is opened, and what its text means.
type Way = (&'static str, fn(String) -> PasswordSpec);

impl Reader {
    /// What stands under `restic`: one repository, or a place where they are searched.
    pub fn restic(
        &mut self,
        node: &Node,
        path: &str,
        around: &dyn Surroundings,
    ) -> Option<SourceSpec> {
        let mut map = self.map(node, path);
        let repository = map.take("repository");
        let searched = self.searched(&mut map, path);
        let password = self.password(&mut map, path);
        let env = self.env(&mut map, path);
        let options = self.options(&mut map, path);
        let key_hint =
            map.take("key_hint").and_then(|node| self.text(node, &join(path, "key_hint")));
        let cacert = self.cacert(&mut map, path, around);
        let insecure_tls = map
            .take("insecure_tls")
            .is_some_and(|node| self.flag(node, &join(path, "insecure_tls")));
        self.finish(map, RESTIC_KEYS);
        self.look_around(node, path, (password.as_ref(), &env), around);
        let place = self.place(node, path, repository, searched.as_ref());
        let password = password?;
        let is_search = searched.is_some();
        let spec = ResticSpec {
            repository: place?,
            password,
            env,
            options,
            key_hint,
            cacert,
            insecure_tls,
        };
        self.names(node, path, &spec, is_search);
        Some(match searched {
            Some(searched) => SourceSpec::Search(searched.spec(spec)),
            None => SourceSpec::Restic(spec),
        })
    }

    /// One file of authorities, or a list of them.
    fn cacert(&mut self, map: &mut Map<'_>, path: &str, around: &dyn Surroundings) -> Vec<PathBuf> {
        let Some(node) = map.take("cacert") else { return Vec::new() };
        let key = join(path, "cacert");
        let items = match &node.value {
            Value::List(items) => &items[..],
            Value::Null | Value::Scalar(_) | Value::Map(_) => std::slice::from_ref(node),
        };
        let mut files = Vec::new();
        for item in items {
            let Some(file) = self.file(item, &key) else { continue };
            if let Some(message) = around.fault(Named::Authorities(&file)) {
                self.problem(item, &key, message);
            }
            files.push(file);
        }
        files
    }

    /// Where the repository is, or where the search begins.
    fn place(
        &mut self,
        node: &Node,
        path: &str,
        repository: Option<&Node>,
        searched: Option<&Searched<'_>>,
    ) -> Option<Location> {
        let (place, key) = match (repository, searched) {
            (Some(repository), None) => (repository, "repository"),
            (None, Some(searched)) => (searched.place, "discover"),
            (Some(_), Some(searched)) => {
                let message = "contradicts repository: a target is one repository, or the place \
                               below which each one found is a target";
                self.problem(searched.place, &join(path, "discover"), message);
                return None;
            }
            (None, None) => {
                let message = "needs repository: a restic repository string, here or as \
                               RESTIC_REPOSITORY in env, env_file or env_dir; or discover: where \
                               to search for repositories";
                self.problem(node, path, message);
                return None;
            }
        };
        let text = self.text(place, &join(path, key))?;
        let location = match Location::parse(&text) {
            Ok(location) => location,
            Err(error) => {
                self.problem(place, &join(path, key), error.to_string());
                return None;
            }
        };
        if key == "discover" && location.below("x").is_none() {
            let message = format!(
                "{}: cannot tell which folders there are; search the folder or bucket behind it \
                 (a path, sftp:, s3:, azure:, gs:), or name each with repository",
                location.scheme()
            );
            self.problem(place, &join(path, key), message);
            return None;
        }
        Some(location)
    }

    /// One way to open the repository, or none; two are a contradiction.
    fn password(&mut self, map: &mut Map<'_>, path: &str) -> Option<PasswordSpec> {
        let mut given: Vec<(&str, PasswordSpec)> = Vec::new();
        let mut first = None;
        let ways: [Way; 4] = [
            ("password_file", |text| PasswordSpec::File(text.into())),
            ("password_command", PasswordSpec::Command),
            ("password_env", PasswordSpec::Variable),
            ("masterkey_file", |text| PasswordSpec::MasterKeyFile(text.into())),
        ];
        for (key, make) in ways {
            if let Some(node) = map.take(key) {
                first = first.or(Some(node));
                given.push((key, make(self.text(node, &join(path, key))?)));
            }
        }
        if let Some(node) = map.take("insecure_no_password") {
            first = first.or(Some(node));
            if self.flag(node, &join(path, "insecure_no_password")) {
                given.push(("insecure_no_password", PasswordSpec::Empty));
            }
        }
        if let Some(node) = map.take("password") {
            self.problem(
                node,
                &join(path, "password"),
                "a password does not belong into this file; use password_file, password_command \
                 or password_env",
            );
            return None;
        }
        if given.len() > 1 {
            let keys: Vec<_> = given.iter().map(|(key, _)| *key).collect();
            let message = format!("only one of {} can be used", keys.join(", "));
            if let Some(node) = first {
                self.problem(node, path, message);
            }
            return None;
        }
        Some(given.pop().map_or(PasswordSpec::Inherit, |(_, password)| password))
    }

    fn env(&mut self, map: &mut Map<'_>, path: &str) -> EnvSpec {
        let mut env = EnvSpec::default();
        if let Some(node) = map.take("env_file") {
            env.env_file = self.file(node, &join(path, "env_file"));
        }
        if let Some(node) = map.take("env_dir") {
            env.env_dir = self.file(node, &join(path, "env_dir"));
        }
        if let Some(node) = map.take("env") {
            let path = join(path, "env");
            for (key, value) in self.map(node, &path).pairs {
                if !is_variable(&key.text) {
                    // Not quoted: `NAME=secret` without a space after a colon is such a key.
                    self.problem(
                        value,
                        &path,
                        "holds a key that names no variable; write NAME: value",
                    );
                    continue;
                }
                match &value.value {
                    Value::Scalar(text) => {
                        env.env.insert(key.text.clone(), Secret::new(text.as_bytes()));
                    }
                    Value::Null => {
                        env.env.insert(key.text.clone(), Secret::new(""));
                    }
                    Value::List(_) | Value::Map(_) => {
                        self.problem(value, &join(&path, &key.text), "must be a text");
                    }
                }
            }
        }
        env
    }

    fn options(&mut self, map: &mut Map<'_>, path: &str) -> BTreeMap<String, String> {
        let mut options = BTreeMap::new();
        if let Some(node) = map.take("options") {
            let path = join(path, "options");
            for (key, value) in self.map(node, &path).pairs {
                if let Some(text) = self.text(value, &join(&path, &key.text)) {
                    options.insert(key.text.clone(), text);
                }
            }
        }
        options
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

const RESTIC_KEYS: &[&str] = &[
    "repository",
    "discover",
    "depth",
    "exclude",
    "include",
    "max",
    "password_file",
    "password_command",
    "password_env",
    "masterkey_file",
    "insecure_no_password",
    "env_file",
    "env_dir",
    "env",
    "options",
    "key_hint",
    "cacert",
    "insecure_tls",
];
