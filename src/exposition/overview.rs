//! What each target amounts to in one word, and which targets a reader asked for.
//!
//! Judging a target means weighing every lock of it, so it is done once for each picture of that
//! target and kept from request to request. What is rendered, and how, is not known here.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::Timestamp;

use crate::evidence::{self, Finding, Severity, Topic};
use crate::judge::State;
use crate::status::{Phase, Seen, Status, TargetStatus};
use crate::target::TargetName;

/// Words of one target that can be searched for, in bytes; longer ones are cut.
const WORDS_BYTES_MAX: usize = 1024;
/// Longest text to search for, in bytes.
const SEARCH_BYTES_MAX: usize = 200;
/// Most words to search for.
const SEARCH_WORDS_MAX: usize = 8;
/// Targets of one page that a person reads.
pub const PAGE: usize = 50;
/// Objects of one answer to a program that names no other number.
pub const LIMIT: usize = 100;
/// Most objects of one answer.
pub const LIMIT_MAX: usize = 1_000;

/// What a target amounts to, the worst first. Each target has exactly one, so that counts add up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Standing {
    /// Two holders at once that exclude each other.
    Conflict,
    /// A lock file that nobody can decode.
    Unreadable,
    /// A lock that was not refreshed for its stuck limit; of a lock file one that was held for so
    /// long while others wait.
    Stuck,
    /// A lock whose process is gone, and that is not stuck yet.
    OwnerGone,
    /// Over a limit, a wrong clock, a daemon's lock that is free, a replaced file.
    Attention,
    /// It cannot be scanned.
    Failing,
    /// It was looked at, and that did not tell.
    Untold,
    /// It was not looked at yet.
    Pending,
    /// Nothing to do.
    Fine,
}

impl Standing {
    /// Every one, the worst first.
    pub const ALL: [Standing; 9] = [
        Standing::Conflict,
        Standing::Unreadable,
        Standing::Stuck,
        Standing::OwnerGone,
        Standing::Attention,
        Standing::Failing,
        Standing::Untold,
        Standing::Pending,
        Standing::Fine,
    ];

    /// The word in queries and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Standing::Conflict => "conflict",
            Standing::Unreadable => "unreadable",
            Standing::Stuck => "stuck",
            Standing::OwnerGone => "owner_gone",
            Standing::Attention => "attention",
            Standing::Failing => "failing",
            Standing::Untold => "untold",
            Standing::Pending => "pending",
            Standing::Fine => "fine",
        }
    }

    /// The same for people, behind a number: `3 failing`.
    pub fn words(self) -> &'static str {
        match self {
            Standing::Conflict => "in conflict",
            Standing::Unreadable => "unreadable",
            Standing::Stuck => "stuck",
            Standing::OwnerGone => "owner gone",
            Standing::Attention => "to look at",
            Standing::Failing => "failing",
            Standing::Untold => "not to be told",
            Standing::Pending => "not looked at yet",
            Standing::Fine => "fine",
        }
    }

    fn of(target: &TargetStatus, findings: &[Finding]) -> Self {
        // Findings come the worst first.
        let worst = findings.iter().find(|finding| finding.severity != Severity::Ok);
        match (worst.map(|finding| finding.topic), &target.phase) {
            (None, _) => Standing::Fine,
            (Some(Topic::Conflict), _) => Standing::Conflict,
            (Some(Topic::Unreadable), _) => Standing::Unreadable,
            (Some(Topic::Stuck), _) => Standing::Stuck,
            (Some(Topic::OwnerGone), _) => Standing::OwnerGone,
            (Some(Topic::NotSeen), Phase::Pending) => Standing::Pending,
            (Some(Topic::NotSeen), Phase::Failing { .. }) => Standing::Failing,
            (Some(Topic::NotSeen), Phase::Seen(_)) => Standing::Untold,
            (
                Some(
                    Topic::HeldTooLong
                    | Topic::BlockedTooLong
                    | Topic::ClockSkew
                    | Topic::NotHeld
                    | Topic::NeverHeld
                    | Topic::ReplacedFile
                    | Topic::Alive
                    | Topic::Sealed
                    | Topic::Empty
                    | Topic::Search,
                ),
                _,
            ) => Standing::Attention,
        }
    }
}

/// How one target was judged when it was last looked for.
struct Judged {
    /// The picture that was judged. Weak, so that it does not live longer for it.
    of: Weak<TargetStatus>,
    /// What was seen could be shown then.
    shown: bool,
    severity: Severity,
    standing: Standing,
    state: State,
    key_pending: bool,
    /// In lower case.
    words: String,
}

/// Every target in one word, kept from request to request.
#[derive(Default)]
pub struct Overview {
    judged: BTreeMap<TargetName, Judged>,
}

/// How many targets there are of each kind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// By standing, the worst first; kinds without a target are left out.
    pub standings: BTreeMap<Standing, usize>,
    /// All targets.
    pub total: usize,
    /// Targets whose key is still being derived.
    pub keys_pending: usize,
}

/// The targets that a reader asked for.
pub struct Selection<'a> {
    /// Of all targets.
    pub counts: Counts,
    /// How many match the filter.
    pub matched: usize,
    /// Those of the wanted part, the worst first.
    pub targets: Vec<(&'a TargetStatus, Standing, Severity)>,
}

impl Overview {
    /// Judges what changed since the last request.
    pub fn follow(&mut self, status: &Status, now: Timestamp, hold: Duration) {
        self.judged.retain(|name, _| status.targets.contains_key(name));
        for (name, target) in status.targets.iter() {
            let shown = target.seen_at(now, hold).is_some();
            let known = self.judged.get(name).is_some_and(|judged| {
                judged.shown == shown && judged.of.as_ptr() == Arc::as_ptr(target)
            });
            if !known {
                self.judged.insert(name.clone(), Judged::new(target, now, hold, shown));
            }
        }
    }

    /// The targets that match, worst first, from `offset` on, at most `limit` of them.
    pub fn select<'a>(
        &self,
        status: &'a Status,
        filter: &Filter,
        offset: usize,
        limit: usize,
    ) -> Selection<'a> {
        let mut counts = Counts { total: status.targets.len(), ..Counts::default() };
        let mut matching = Vec::new();
        for (name, judged) in &self.judged {
            *counts.standings.entry(judged.standing).or_default() += 1;
            counts.keys_pending += usize::from(judged.key_pending);
            if filter.matches(judged) {
                matching.push((std::cmp::Reverse(judged.severity), judged.standing, name));
            }
        }
        matching.sort();
        let matched = matching.len();
        let targets = matching
            .into_iter()
            .skip(offset)
            .take(limit)
            .filter_map(|(severity, standing, name)| {
                status.targets.get(name).map(|target| (&**target, standing, severity.0))
            })
            .collect();
        Selection { counts, matched, targets }
    }

    /// What one target amounts to.
    pub fn standing(&self, name: &TargetName) -> Option<Standing> {
        self.judged.get(name).map(|judged| judged.standing)
    }

    /// How many targets there are of each kind.
    pub fn counts(&self, status: &Status) -> Counts {
        self.select(status, &Filter::default(), 0, 0).counts
    }
}

impl Judged {
    fn new(target: &Arc<TargetStatus>, now: Timestamp, hold: Duration, shown: bool) -> Self {
        let findings = evidence::findings(target, now, hold);
        let seen = target.seen_at(now, hold);
        Self {
            of: Arc::downgrade(target),
            shown,
            severity: evidence::worst(&findings),
            standing: Standing::of(target, &findings),
            state: seen.map_or(State::Unknown, |seen| seen.state()),
            key_pending: seen.is_some_and(|seen| seen.facts.key_pending),
            words: words(target, seen.map(|seen| &**seen)),
        }
    }
}

/// What one searches a target by: its name and place, and who holds its locks.
fn words(target: &TargetStatus, seen: Option<&Seen>) -> String {
    let mut words = format!(
        "{} {} {} {}",
        target.spec.name,
        target.spec.location(),
        target.spec.source_name(),
        target.spec.host
    );
    for hold in seen.into_iter().flat_map(|seen| &seen.holds) {
        if words.len() >= WORDS_BYTES_MAX {
            break;
        }
        let holder = &hold.holder;
        for word in [&holder.hostname, &holder.username, &holder.command] {
            words.push(' ');
            words.extend(word.chars().take(WORDS_BYTES_MAX / 4));
        }
    }
    words.to_lowercase()
}

/// Which targets are wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// As it was typed.
    pub text: String,
    /// What they amount to, or the state of their locks.
    pub kind: Option<Kind>,
}

/// What one can ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// What targets amount to.
    Standing(Standing),
    /// What a new lock would meet.
    State(State),
}

impl Kind {
    /// Everything that can be asked for.
    pub fn all() -> impl Iterator<Item = Kind> {
        let states = State::ALL.into_iter().map(Kind::State);
        Standing::ALL.into_iter().map(Kind::Standing).chain(states)
    }

    /// The word in queries.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Standing(standing) => standing.as_str(),
            Kind::State(state) => state.as_str(),
        }
    }
}

impl Filter {
    /// Takes a text to search for.
    ///
    /// # Errors
    /// In words, when it is too long.
    pub fn search(&mut self, text: &str) -> Result<(), String> {
        if text.len() > SEARCH_BYTES_MAX || text.split_whitespace().count() > SEARCH_WORDS_MAX {
            return Err(format!(
                "q may have at most {SEARCH_WORDS_MAX} words and {SEARCH_BYTES_MAX} bytes"
            ));
        }
        self.text = text.trim().to_owned();
        Ok(())
    }

    /// Takes the word of a kind; an empty one asks for all.
    ///
    /// # Errors
    /// In words, when there is no such kind.
    pub fn ask(&mut self, word: &str) -> Result<(), String> {
        self.kind = Kind::all().find(|kind| kind.as_str() == word);
        if self.kind.is_some() || word.is_empty() {
            return Ok(());
        }
        let all: Vec<_> = Kind::all().map(Kind::as_str).collect();
        Err(format!("state is one of {}", all.join(", ")))
    }

    fn matches(&self, judged: &Judged) -> bool {
        let kind = match self.kind {
            None => true,
            Some(Kind::Standing(standing)) => judged.standing == standing,
            Some(Kind::State(state)) => judged.state == state,
        };
        let mut words = self.text.split_whitespace();
        kind && words.all(|word| judged.words.contains(&word.to_lowercase()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_word_of_its_own() {
        let words: std::collections::BTreeSet<_> = Kind::all().map(Kind::as_str).collect();
        assert_eq!(words.len(), Kind::all().count());
    }

    #[test]
    fn what_cannot_be_asked_for_is_refused_in_words() {
        let mut filter = Filter::default();
        assert!(filter.ask("stuk").unwrap_err().contains("stuck, "));
        assert_eq!(filter.ask("stuck"), Ok(()));
        assert_eq!(filter.kind, Some(Kind::Standing(Standing::Stuck)));
        assert_eq!(filter.ask(""), Ok(()));
        assert_eq!(filter.kind, None);
        assert!(filter.search(&"x".repeat(201)).is_err());
        assert!(filter.search("a b c d e f g h i").is_err());
        assert_eq!(filter.search(" db01 Web "), Ok(()));
        assert_eq!(filter.text, "db01 Web");
    }
}
