use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;

use super::*;
use crate::store::{Entry, Listing, StoreError};

/// Folders, and how often they were listed.
#[derive(Debug, Default)]
struct Tree {
    folders: BTreeSet<String>,
    listed: AtomicUsize,
    is_blind: bool,
}

impl Tree {
    fn of(repositories: &[&str], others: &[&str]) -> Self {
        let parts = ["data/00", "data/01", "keys", "locks", "snapshots"];
        let inner = repositories.iter().flat_map(|at| {
            parts.map(|part| if at.is_empty() { part.into() } else { format!("{at}/{part}") })
        });
        let folders = inner.chain(others.iter().map(|other| (*other).to_owned())).collect();
        Self { folders, ..Self::default() }
    }
}

#[async_trait]
impl ReadStore for Tree {
    async fn list(&self, _folder: &str) -> Result<Listing, StoreError> {
        panic!("files are not looked at")
    }

    async fn stat(&self, _path: &str) -> Result<Entry, StoreError> {
        panic!("files are not looked at")
    }

    async fn read(&self, _path: &str, _bytes_max: u64) -> Result<Bytes, StoreError> {
        panic!("files are not looked at")
    }

    async fn folders(&self, folder: &str) -> Result<Option<Vec<String>>, StoreError> {
        assert!(!folder.split('/').any(|part| part == "data"), "walks {folder}");
        self.listed.fetch_add(1, Ordering::SeqCst);
        let start = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let below = self.folders.iter().filter_map(|path| path.strip_prefix(&start));
        let names: BTreeSet<_> = below.filter_map(|path| path.split('/').next()).collect();
        Ok((!self.is_blind).then(|| names.into_iter().map(str::to_owned).collect()))
    }
}

fn search(depth: u32, exclude: &[&str], max: usize) -> Search {
    let exclude = exclude.iter().map(|text| Pattern::new(text).expect("is a pattern")).collect();
    Search { depth, exclude, max }
}

#[tokio::test]
async fn repositories_are_found_down_to_the_depth_and_never_walked() {
    let repositories = ["a", "b/c", "b/d/e", "tmp/x", "ünï/x y"];
    let tree = Tree::of(&repositories, &["b/empty", "keys/only", "deep/er/still"]);
    for (depth, exclude, want, listings) in [
        (0, &[][..], &[][..], 1),
        (1, &[], &["a"][..], 7),
        (2, &[], &["a", "b/c", "tmp/x", "ünï/x y"], 14),
        (2, &["tmp"], &["a", "b/c", "ünï/x y"], 12),
        (2, &["tmp/*", "b/?"], &["a", "ünï/x y"], 11),
        (9, &["b/**"], &["a", "tmp/x", "ünï/x y"], 12),
    ] {
        let before = tree.listed.load(Ordering::SeqCst);
        let found = find(&tree, &search(depth, exclude, 99)).await.expect("searches");
        assert_eq!(found, want, "{depth} {exclude:?}");
        assert_eq!(tree.listed.load(Ordering::SeqCst) - before, listings, "{depth} {exclude:?}");
    }
    let start = Tree::of(&[""], &["x"]);
    assert_eq!(find(&start, &search(3, &[], 9)).await.expect("searches"), [""]);
}

#[tokio::test]
async fn a_search_that_cannot_see_everything_finds_nothing() {
    let tree = Tree::of(&["a", "b", "c"], &[]);
    let error = find(&tree, &search(1, &[], 2)).await.expect_err("finds too many");
    assert_eq!(error.class, ErrorClass::Incomplete);
    let blind = Tree { is_blind: true, ..Tree::default() };
    let error = find(&blind, &search(1, &[], 2)).await.expect_err("cannot see");
    assert_eq!(error.class, ErrorClass::Unsupported);
}

#[test]
fn names_are_safe_bounded_and_unique() {
    let entry = TargetName::new("fleet").expect("is a name");
    let long = "x".repeat(300);
    let found: Vec<String> =
        ["", "db01", "a\nb", "a_b", &long, &format!("{long}y")].map(str::to_owned).to_vec();
    let taken = TargetName::new("fleet/db01").expect("is a name");
    let named = names(&entry, &found, |name| *name == taken);
    let paths: BTreeSet<_> = named.values().collect();
    assert_eq!(paths.len(), found.len(), "each has a name: {named:?}");
    let shown: Vec<_> = named.keys().map(TargetName::as_str).collect();
    assert!(shown.contains(&"fleet/.") && shown.contains(&"fleet/a_b"));
    assert!(shown.iter().any(|name| name.starts_with("fleet/db01~")));
    assert!(shown.iter().any(|name| name.starts_with("fleet/a_b~")));
    assert!(shown.iter().all(|name| name.len() <= TargetName::BYTES_MAX));
    assert_eq!(names(&entry, &found, |name| *name == taken), named, "and keeps it");
}

proptest::proptest! {
    #[test]
    fn no_pattern_and_no_name_makes_it_panic(text: String, path: String) {
        if let Some(pattern) = Pattern::new(&text) {
            let _ = pattern.matches(&path);
        }
        let entry = TargetName::new("e").expect("is a name");
        proptest::prop_assert!(names(&entry, &[text, path], |_| false).len() <= 2);
    }
}
