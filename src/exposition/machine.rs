//! What is known of the machine itself, as metric families: what may be seen, and the processes
//! that can hold repository locks.
//!
//! Two exporters' views are joined by the rules: one sees a lock, the other its holder's host.

use std::collections::BTreeMap;

use jiff::Timestamp;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{MetricFamily, MetricType};

use super::metrics::{Kind, family, pair, sample, seconds};
use crate::label::{BYTES_MAX, clean};
use crate::status::{Holders, MachineStatus};

impl Collector for MachineStatus {
    /// Empty: each render has its own registry.
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let capability = |(name, there): &(&str, bool)| {
            sample(Kind::Gauge, vec![pair("name", name)], f64::from(u8::from(*there)))
        };
        let mut families = vec![family(
            "lock_exporter_capability",
            "What the exporter may see of this machine: 1 = it may.",
            MetricType::GAUGE,
            self.capabilities.iter().map(capability).collect(),
        )];
        if let Some(holders) = &self.holders {
            families.extend(processes(holders));
        }
        families
    }
}

fn processes(holders: &Holders) -> [MetricFamily; 2] {
    // Cleaned names may meet, and two processes may have one pid in different containers: of one
    // series the earliest start, for an early one can be the holder where a late one cannot.
    let mut starts = BTreeMap::new();
    for hostname in &holders.hostnames {
        let hostname = clean(hostname, BYTES_MAX).into_owned();
        for process in &holders.processes {
            let command = clean(&process.command, BYTES_MAX).into_owned();
            let key = (hostname.clone(), process.pid, command);
            let start = starts.entry(key).or_insert(process.started_at);
            *start = process.started_at.min(*start);
        }
    }
    let start = |((hostname, pid, command), at): (&(String, i64, String), &Timestamp)| {
        let labels = vec![
            pair("hostname", hostname),
            pair("pid", &pid.to_string()),
            pair("command", command),
        ];
        sample(Kind::Gauge, labels, seconds(*at))
    };
    let mut hostnames: Vec<_> =
        holders.hostnames.iter().map(|name| clean(name, BYTES_MAX).into_owned()).collect();
    hostnames.sort();
    hostnames.dedup();
    let watched = |name: &String| {
        let value = f64::from(u8::from(holders.watched));
        sample(Kind::Gauge, vec![pair("hostname", name)], value)
    };
    [
        family(
            "lock_process_start_timestamp_seconds",
            "Start of a process of this machine that can hold repository locks, by every pid and host name that it is known by.",
            MetricType::GAUGE,
            starts.iter().map(start).collect(),
        ),
        family(
            "lock_process_watched",
            "1 = all processes of this machine are visible and no other has its name, so one that is not listed is not there.",
            MetricType::GAUGE,
            hostnames.iter().map(watched).collect(),
        ),
    ]
}
