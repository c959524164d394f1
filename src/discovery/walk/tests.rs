use std::collections::BTreeSet;

use async_trait::async_trait;
use bytes::Bytes;

use super::*;
use crate::location::Location;
use crate::pattern::Pattern;
use crate::secret::{EnvSpec, PasswordSpec};
use crate::store::{Entry, Listing, StoreError};
use crate::target::ResticSpec;

/// Folders, and how often they were listed.
#[derive(Clone, Debug, Default)]
struct Tree {
    folders: BTreeSet<String>,
    listed: Arc<AtomicUsize>,
    is_blind: bool,
    /// Folders that fail, and how.
    faults: BTreeMap<String, StoreErrorKind>,
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
        if let Some(kind) = self.faults.get(folder) {
            let (doing, cause) = (format!("list folders of {folder}"), "as asked".into());
            return Err(StoreError {
                kind: *kind,
                doing,
                cause,
                advice: String::new(),
                wait: None,
            });
        }
        let start = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let below = self.folders.iter().filter_map(|path| path.strip_prefix(&start));
        let names: BTreeSet<_> = below.filter_map(|path| path.split('/').next()).collect();
        Ok((!self.is_blind).then(|| names.into_iter().map(str::to_owned).collect()))
    }
}

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| Pattern::new(text).expect("is a pattern")).collect()
}

fn search(depth: u32, exclude: &[&str]) -> Repositories {
    let each = ResticSpec {
        repository: Location::Local("/nowhere".into()),
        password: PasswordSpec::Inherit,
        env: EnvSpec::default(),
        options: BTreeMap::new(),
        key_hint: None,
        cacert: Vec::new(),
        insecure_tls: false,
    };
    Repositories { each, depth, exclude: patterns(exclude), include: Vec::new() }
}

/// Searches with several stores, as the exporter does.
async fn find(
    tree: &Tree,
    search: &Repositories,
    max: usize,
    memory: &Memory,
) -> Result<Found, ScanError> {
    let tree: Arc<dyn ReadStore> = Arc::new(tree.clone());
    super::find(&vec![tree; 3], search, max, memory).await
}

async fn found(tree: &Tree, search: &Repositories, memory: &Memory) -> Vec<String> {
    let found = find(tree, search, 99, memory).await.expect("searches");
    found.repositories.into_iter().collect()
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
        let seen = found(&tree, &search(depth, exclude), &Memory::default()).await;
        assert_eq!(seen, want, "{depth} {exclude:?}");
        assert_eq!(tree.listed.load(Ordering::SeqCst) - before, listings, "{depth} {exclude:?}");
    }
    let start = Tree::of(&[""], &["x"]);
    assert_eq!(found(&start, &search(3, &[]), &Memory::default()).await, [""]);
    let some = Repositories { include: patterns(&["b/*"]), ..search(2, &[]) };
    assert_eq!(found(&tree, &some, &Memory::default()).await, ["b/c"]);
}

#[tokio::test]
async fn a_warm_search_lists_where_new_ones_can_appear_and_little_else() {
    let names: Vec<String> = (0..300).map(|n| format!("repo{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut tree = Tree::of(&names, &["junk1", "junk2"]);
    let (memory, search) = (Memory::default(), search(1, &[]));
    let listings = async |tree: &Tree| {
        let before = tree.listed.load(Ordering::SeqCst);
        let found = find(tree, &search, 2_000, &memory).await.expect("searches").repositories;
        (found.len(), tree.listed.load(Ordering::SeqCst) - before)
    };
    assert_eq!(listings(&tree).await, (300, 303));
    tree.folders.extend(Tree::of(&["new"], &[]).folders);
    let mut all = 0;
    for turn in 0..AGAIN {
        let (found, listed) = listings(&tree).await;
        assert_eq!(found, 301, "a new one is found at once");
        assert!(listed < 100, "{turn}: {listed}");
        all += listed;
    }
    // Each folder once, the new one perhaps twice, the start each time.
    let each = usize::try_from(AGAIN).expect("is small") + 303;
    assert!((each..=each + 1).contains(&all), "{all}");
    tree.folders.retain(|path| !path.starts_with("repo7/") && !path.starts_with("junk1"));
    tree.folders.extend(Tree::of(&["junk2"], &["repo7"]).folders);
    for _ in 0..AGAIN {
        listings(&tree).await;
    }
    let seen = find(&tree, &search, 2_000, &memory).await.expect("searches").repositories;
    assert!(seen.contains("junk2") && !seen.contains("repo7"), "made and unmade in place");
}

#[tokio::test]
async fn a_search_that_was_cut_off_goes_on_where_it_was() {
    let mut tree = Tree::of(&["a", "b", "c"], &[]);
    tree.faults.insert("c".into(), StoreErrorKind::Failed(ErrorClass::Network));
    let (memory, search) = (Memory::default(), search(1, &[]));
    let error = find(&tree, &search, 9, &memory).await.expect_err("is cut off");
    assert_eq!(error.class, ErrorClass::Network);
    tree.faults.clear();
    let before = tree.listed.load(Ordering::SeqCst);
    assert_eq!(found(&tree, &search, &memory).await, ["a", "b", "c"]);
    assert!(
        tree.listed.load(Ordering::SeqCst) - before < 4,
        "what was seen was not looked at again"
    );
}

#[tokio::test]
async fn a_search_that_cannot_see_everything_finds_nothing() {
    let tree = Tree::of(&["a", "b", "c"], &[]);
    let memory = Memory::default;
    let error = find(&tree, &search(1, &[]), 2, &memory()).await.expect_err("finds too many");
    assert_eq!(error.class, ErrorClass::Incomplete);
    let blind = Tree { is_blind: true, ..Tree::default() };
    let error = find(&blind, &search(1, &[]), 2, &memory()).await.expect_err("cannot see");
    assert_eq!(error.class, ErrorClass::Unsupported);
    let mut closed = Tree::of(&["a"], &[]);
    closed.faults.insert(String::new(), StoreErrorKind::Failed(ErrorClass::Permission));
    let error = find(&closed, &search(1, &[]), 2, &memory()).await.expect_err("cannot see");
    assert_eq!(error.class, ErrorClass::Permission);
}

#[tokio::test]
async fn one_closed_folder_hides_no_other_and_is_told() {
    let mut tree = Tree::of(&["a", "lost/b"], &["gone"]);
    tree.faults.insert("lost".into(), StoreErrorKind::Failed(ErrorClass::Permission));
    tree.faults.insert("gone".into(), StoreErrorKind::NotFound);
    let found = find(&tree, &search(2, &[]), 9, &Memory::default()).await.expect("searches");
    assert_eq!(found.repositories, BTreeSet::from(["a".into()]));
    assert_eq!(found.closed, BTreeSet::from(["lost".into()]), "what vanished is not closed");
    assert!(found.first_closed.is_some_and(|error| error.doing.contains("lost")));
}

#[tokio::test]
async fn a_folder_without_what_was_in_it_is_told_from_one_that_is_gone() {
    let tree = Tree::of(&["a", "host1/a", "host2/a"], &["host3"]);
    let (memory, search) = (Memory::default(), search(2, &[]));
    assert_eq!(found(&tree, &search, &memory).await, ["a", "host1/a", "host2/a"]);
    let mut tree = Tree::of(&["host2/b/c", "host2/b"], &["a/lost+found", "host1", "host3"]);
    for _ in 0..=AGAIN {
        find(&tree, &search, 9, &memory).await.expect("searches");
    }
    let found = find(&tree, &search, 9, &memory).await.expect("searches");
    let bare = ["a", "a/lost+found", "host1", "host3"].map(str::to_owned);
    assert_eq!(found.bare, BTreeSet::from(bare), "mounted or not, host2 has others");
    tree.folders.retain(|path| path.starts_with("host2"));
    let found = find(&tree, &search, 9, &memory).await.expect("searches");
    assert_eq!(found.bare, BTreeSet::new(), "these folders are gone");
}

#[tokio::test]
async fn names_that_cannot_be_part_of_a_path_are_counted_and_not_followed() {
    let mut odd = Ignored::default();
    let names = ["..", ".", "", "a/b", "x\u{0}", "br\u{FFFD}ken", "line\nbreak", "ok"];
    let names = names.map(str::to_owned).to_vec();
    let paths = below("up", names, &search(1, &[]), &mut odd);
    assert_eq!(paths, ["up/line\nbreak", "up/ok"]);
    assert_eq!(odd.count, 6);
}
