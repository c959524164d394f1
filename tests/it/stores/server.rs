//! Real servers for one test each, on free ports of 127.0.0.1.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// Longer than any server takes on a machine that compiles meanwhile.
const START: Duration = Duration::from_secs(60);

/// A running program; it ends when dropped.
pub struct Server {
    child: Child,
    log: PathBuf,
}

/// The program that a variable of `tests/run` names.
pub fn program(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} must name a program, as tests/run finds one"))
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    listener.local_addr().expect("is bound").port()
}

impl Server {
    /// Starts a program and waits until `ready`.
    pub fn start(command: &mut Command, log: &Path, ready: impl Fn() -> bool) -> Self {
        let file = std::fs::File::create(log).expect("makes a log");
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("is open"))
            .stderr(file)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut server = Self { child, log: log.to_owned() };
        let begun = Instant::now();
        while !ready() {
            let ended = server.child.try_wait().expect("is ours");
            let late = begun.elapsed() > START;
            assert!(ended.is_none() && !late, "{command:?} did not start: {}", server.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// Starts a program that listens on a port.
    pub fn on_port(command: &mut Command, log: &Path, port: u16) -> Self {
        Self::start(command, log, || TcpStream::connect(("127.0.0.1", port)).is_ok())
    }

    /// What it said so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Stops it without ending it: it accepts and never answers.
    pub fn freeze(&self) {
        stop(self.pid());
    }

    pub fn thaw(&self) {
        signal(self.pid(), Signal::CONT);
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a signal to a process that this test started.
pub fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("is a pid");
    // It may have ended by itself.
    let _ = rustix::process::kill_process(pid, signal);
}

/// The processes that a process started, and those that they started.
pub fn descendants(of: u32) -> Vec<u32> {
    let parent = |pid: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let all = std::fs::read_dir("/proc").expect("is there").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parents: Vec<(u32, u32)> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let (mut found, mut next) = (Vec::new(), vec![of]);
    while let Some(of) = next.pop() {
        let children = parents.iter().filter(|(_, parent)| *parent == of).map(|(pid, _)| *pid);
        let children: Vec<u32> = children.collect();
        next.extend(&children);
        found.extend(children);
    }
    found
}

/// Stops a process that this test started, and waits until each of its threads has stopped.
pub fn stop(pid: u32) {
    signal(pid, Signal::STOP);
    let stopped = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['T', 'Z']))
    };
    let all = || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
        tasks.map_or(true, |tasks| tasks.flatten().all(stopped))
    };
    while !all() {
        std::thread::yield_now();
    }
}

/// Lets more time pass on tokio's clock than any connection is kept without use.
pub async fn idle() {
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(600)).await;
    tokio::time::resume();
}

/// Waits until none of them runs.
pub async fn ended(pids: &[u32]) {
    let running = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
    };
    tokio::time::timeout(START, async {
        while pids.iter().any(running) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("they end");
}
