//! The part of the configuration that speaks of searches: targets that are found by themselves.

use super::reader::{Map, Reader, join};
use super::tree::{Node, Value};
use crate::pattern::{Glob, Pattern};
use crate::secret::PasswordSpec;
use crate::target::{
    FileSpec, Files, NAME, Repositories, ResticSpec, SearchSpec, Sought, names_each,
};

/// Levels below the start that are looked into when nothing is said.
const DEPTH: u32 = 1;
/// Most levels.
const DEPTH_MAX: u32 = 16;
/// Repositories of one search when nothing is said.
const REPOSITORIES_MAX: usize = 10_000;
/// Lock files of one search when nothing is said.
const FILES_MAX: usize = 200;
/// Finds of one search that can be allowed.
const MAX: usize = 100_000;
/// Patterns of one search.
const PATTERNS_MAX: usize = 1_000;

/// What is said of a search for repositories.
pub(super) struct Searched<'a> {
    pub place: &'a Node,
    depth: u32,
    exclude: Vec<Pattern>,
    include: Vec<Pattern>,
    max: usize,
}

impl Searched<'_> {
    /// The search for repositories that are opened like this.
    pub fn spec(self, each: ResticSpec) -> SearchSpec {
        let Self { depth, exclude, include, max, .. } = self;
        let sought = Sought::Repositories(Repositories { each, depth, exclude, include });
        SearchSpec { sought, max, is_shown: true }
    }
}

impl Reader {
    /// The keys of a search, when there is one; without one they are of no use, which is an error.
    pub fn searched<'a>(&mut self, map: &mut Map<'a>, path: &str) -> Option<Searched<'a>> {
        let place = map.take("discover");
        let mut given = Vec::new();
        let mut take = |key: &'static str| {
            let node = map.take(key);
            given.extend(node.map(|node| (key, node)));
            node
        };
        let (depth, max) = (take("depth"), take("max"));
        let (exclude, include) = (take("exclude"), take("include"));
        let Some(place) = place else {
            for (key, node) in given {
                self.problem(node, &join(path, key), "is for discover, which is not there");
            }
            return None;
        };
        let number = |this: &mut Self, node: Option<&Node>, key: &str, or: u32, most: u32| {
            let Some(node) = node else { return or };
            this.number(node, &join(path, key), u32::from(key == "max")..=most).unwrap_or(or)
        };
        let depth = number(self, depth, "depth", DEPTH, DEPTH_MAX);
        let max = number(self, max, "max", REPOSITORIES_MAX as u32, MAX as u32) as usize;
        let exclude = self.patterns(exclude, &join(path, "exclude"));
        let include = self.patterns(include, &join(path, "include"));
        Some(Searched { place, depth, exclude, include, max })
    }

    /// What a pattern of paths finds.
    pub fn glob(
        &mut self,
        node: &Node,
        key: &str,
        each: FileSpec,
        max: usize,
    ) -> Option<SearchSpec> {
        match Glob::new(&each.path.to_string_lossy()) {
            Ok(glob) => {
                let sought = Sought::Files(Files { each, glob });
                Some(SearchSpec { sought, max, is_shown: true })
            }
            Err(message) => {
                self.problem(node, key, message);
                None
            }
        }
    }

    /// How many lock files one pattern may find.
    pub fn files_max(&mut self, node: Option<&Node>, path: &str) -> usize {
        let given = node.and_then(|node| self.number(node, &join(path, "max"), 1..=MAX as u32));
        given.map_or(FILES_MAX, |max| max as usize)
    }

    fn number(
        &mut self,
        node: &Node,
        key: &str,
        range: std::ops::RangeInclusive<u32>,
    ) -> Option<u32> {
        let number = self.text(node, key)?.parse().ok().filter(|number| range.contains(number));
        if number.is_none() {
            let message = format!("must be a number from {} to {}", range.start(), range.end());
            self.problem(node, key, message);
        }
        number
    }

    /// One pattern, or a list of them.
    fn patterns(&mut self, node: Option<&Node>, key: &str) -> Vec<Pattern> {
        let Some(node) = node else { return Vec::new() };
        let items = match &node.value {
            Value::Scalar(_) => std::slice::from_ref(node),
            Value::Null | Value::List(_) | Value::Map(_) => self.list(node, key),
        };
        if items.len() > PATTERNS_MAX {
            self.problem(node, key, format!("holds more than {PATTERNS_MAX} patterns"));
            return Vec::new();
        }
        let mut patterns = Vec::new();
        for item in items {
            let Some(text) = self.text(item, key) else { continue };
            match Pattern::new(&text) {
                Some(pattern) => patterns.push(pattern),
                None => self.problem(item, key, "this is no pattern: look at its [ and ]"),
            }
        }
        patterns
    }

    /// [`NAME`] stands for the path of a find, in the paths of secrets and nowhere else.
    pub fn names(&mut self, node: &Node, path: &str, spec: &ResticSpec, is_search: bool) {
        if let PasswordSpec::Command(line) = &spec.password
            && line.contains(NAME)
        {
            // Whoever makes folders would write a part of the command.
            let message = "holds {name}, which is for paths only: the command of a repository that \
                           was found has its name in the variable LOCK_EXPORTER_FOUND_NAME";
            self.problem(node, &join(path, "password_command"), message);
        }
        let mut files = Vec::new();
        match &spec.password {
            PasswordSpec::File(file) => files.push(("password_file", file)),
            PasswordSpec::MasterKeyFile(file) => files.push(("masterkey_file", file)),
            PasswordSpec::Inherit
            | PasswordSpec::Command(_)
            | PasswordSpec::Variable(_)
            | PasswordSpec::Empty => {}
        }
        files.extend(spec.env.env_file.iter().map(|file| ("env_file", file)));
        files.extend(spec.env.env_dir.iter().map(|file| ("env_dir", file)));
        for (key, _) in files.into_iter().filter(|(_, file)| !is_search && names_each(file)) {
            let message = "holds {name}, which stands for a repository that was found, and there \
                           is no discover";
            self.problem(node, &join(path, key), message);
        }
    }
}
