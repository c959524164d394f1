//! The specification of a target that a search found: what the search says of each, at its own
//! place. Pure.
//!
//! Whoever may make folders chooses the paths, so a path becomes part of another one only where it
//! cannot lead out of it, and never a part of a command.

use std::path::{Component, Path, PathBuf};

use super::{
    FileSpec, Files, Repositories, ResticSpec, Sought, SourceSpec, TargetName, TargetSpec,
};
use crate::secret::{EnvSpec, PasswordSpec, Secret};

/// Stands for the path below the place of a search in the paths of secrets.
pub const NAME: &str = "{name}";
/// The variable that a password command has the same from.
const VARIABLE: &str = "LOCK_EXPORTER_FOUND_NAME";

impl TargetSpec {
    /// The target at this path below the place of this search, under this name. None when this is
    /// no search, or when its backend or its secrets cannot be named by such a path.
    pub fn find(&self, name: &TargetName, path: &Path) -> Option<TargetSpec> {
        if !stays_below(path) {
            return None;
        }
        let source = match &self.search()?.sought {
            Sought::Repositories(sought) => SourceSpec::Restic(sought.at(path.to_str()?)?),
            Sought::Files(sought) => SourceSpec::File(sought.at(path)),
        };
        Some(TargetSpec { name: name.clone(), source, ..self.clone() })
    }
}

/// Neither absolute nor upwards.
fn stays_below(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_)))
}

impl Files {
    fn at(&self, path: &Path) -> FileSpec {
        FileSpec { path: self.glob.folder.join(path), ..self.each }
    }
}

impl Repositories {
    /// How the place itself is reached: as each repository, without what is for one of them.
    pub fn start(&self) -> ResticSpec {
        let EnvSpec { env, env_file, env_dir } = self.each.env.clone();
        let for_all = |path: &PathBuf| !names_each(path);
        let (env_file, env_dir) = (env_file.filter(for_all), env_dir.filter(for_all));
        ResticSpec { env: EnvSpec { env, env_file, env_dir }, ..self.each.clone() }
    }

    fn at(&self, path: &str) -> Option<ResticSpec> {
        let mut each = self.each.clone();
        each.repository = each.repository.below(path)?;
        // A folder of secrets for the place itself is as good as for any other.
        let path = if path.is_empty() { "." } else { path };
        let named = |text: &mut PathBuf| {
            if let Some(template) = text.to_str().filter(|template| template.contains(NAME)) {
                *text = template.replace(NAME, path).into();
            }
        };
        each.env.env_file.iter_mut().for_each(named);
        each.env.env_dir.iter_mut().for_each(named);
        match &mut each.password {
            PasswordSpec::File(file) | PasswordSpec::MasterKeyFile(file) => named(file),
            PasswordSpec::Command(_) => {
                each.env.env.insert(VARIABLE.to_owned(), Secret::new(path));
            }
            PasswordSpec::Inherit | PasswordSpec::Variable(_) | PasswordSpec::Empty => {}
        }
        Some(each)
    }
}

/// Whether a path is one for each find.
pub fn names_each(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.contains(NAME))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::location::Location;
    use crate::target::{PerMode, SearchSpec};

    fn search(password: PasswordSpec) -> TargetSpec {
        let env_dir = Some("/secrets/{name}".into());
        let each = ResticSpec {
            repository: Location::Local("/srv/restic".into()),
            password,
            env: EnvSpec { env_dir, env_file: Some("/etc/env".into()), ..EnvSpec::default() },
            options: BTreeMap::new(),
            key_hint: None,
            cacert: Vec::new(),
            insecure_tls: false,
        };
        let sought = Repositories { each, depth: 1, exclude: Vec::new(), include: Vec::new() };
        let sought = Sought::Repositories(sought);
        TargetSpec {
            name: TargetName::new("fleet").expect("is a name"),
            interval: Duration::from_secs(60),
            idle_interval: Duration::from_secs(60),
            timeout: Duration::from_secs(30),
            hold_limit: PerMode::default(),
            stuck_limit: PerMode::default(),
            host: "".into(),
            source: SourceSpec::Search(SearchSpec { sought, max: 9, is_shown: true }),
        }
    }

    fn found(password: PasswordSpec, path: &str) -> Option<ResticSpec> {
        let search = search(password);
        let found = search.find(&TargetName::new("x").expect("is a name"), Path::new(path))?;
        match found.source {
            SourceSpec::Restic(restic) => Some(restic),
            SourceSpec::File(_) | SourceSpec::Search(_) => None,
        }
    }

    #[test]
    fn each_find_has_its_own_place_and_secrets() {
        let file = || PasswordSpec::File("/etc/restic/{name}.pass".into());
        let one = found(file(), "a/b c").expect("is below");
        assert_eq!(one.repository, Location::Local("/srv/restic/a/b c".into()));
        assert_eq!(one.password, PasswordSpec::File("/etc/restic/a/b c.pass".into()));
        assert_eq!(one.env.env_dir, Some("/secrets/a/b c".into()));
        assert_eq!(one.env.env_file, Some("/etc/env".into()));
        let root = found(file(), "").expect("is the place itself");
        assert_eq!(root.repository, Location::Local("/srv/restic".into()));
        assert_eq!(root.env.env_dir, Some("/secrets/.".into()));
    }

    #[test]
    fn no_path_leads_out_or_becomes_part_of_a_command() {
        let file = || PasswordSpec::File("/etc/restic/{name}".into());
        for path in ["../x", "a/../../x", "/etc/shadow", "./x"] {
            assert_eq!(found(file(), path), None, "{path}");
        }
        let command = PasswordSpec::Command("pass show {name}".into());
        let one = found(command.clone(), "x; rm -rf ~").expect("is below");
        assert_eq!(one.password, command);
        assert_eq!(one.env.env[VARIABLE], Secret::new("x; rm -rf ~"));
    }

    #[test]
    fn the_search_itself_uses_nothing_that_is_for_one_find() {
        let search = search(PasswordSpec::Inherit);
        let Some(SearchSpec { sought: Sought::Repositories(sought), .. }) = search.search() else {
            panic!("is a search of repositories")
        };
        let start = sought.start();
        assert_eq!((start.env.env_dir, start.env.env_file), (None, Some("/etc/env".into())));
    }
}
