//! Limits of one connection: time without a byte, and bytes.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::timeout;

/// What a connection may take. All defaults are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// For looking up and connecting. Default 10 s.
    pub(crate) connect: Duration,
    /// For what a client says before anything is sent. Default 30 s.
    pub(crate) head: Duration,
    /// Without a byte in either direction. Default 5 min.
    pub(crate) idle: Duration,
    /// Bytes in both directions of one connection. Default 64 GiB.
    pub(crate) bytes: u64,
    /// Connections at one time; a further one waits. Default 256.
    pub(crate) connections: usize,
    /// Denials that are recorded; a loop of a command doesn't fill the disk. Default 1000.
    pub(crate) denials: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            head: Duration::from_secs(30),
            idle: Duration::from_mins(5),
            bytes: 64 << 30,
            connections: 256,
            denials: 1000,
        }
    }
}

/// Counts what moves through a connection.
#[derive(Debug)]
pub(super) struct Meter {
    moved: AtomicU64,
    most: u64,
    idle: Duration,
}

impl Meter {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { moved: AtomicU64::new(0), most: limits.bytes, idle: limits.idle }
    }

    /// Counts bytes; fails beyond the limit.
    pub(super) fn add(&self, bytes: usize) -> io::Result<()> {
        let moved = self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
        if moved.saturating_add(bytes as u64) > self.most {
            return Err(io::Error::other("the limit of bytes of a connection is reached"));
        }
        Ok(())
    }

    /// Waits for one step, as long as bytes move in either direction.
    pub(super) async fn step<T>(&self, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let mut step = std::pin::pin!(step);
        loop {
            let before = self.moved.load(Ordering::Relaxed);
            if let Ok(done) = timeout(self.idle, &mut step).await {
                return done;
            }
            if self.moved.load(Ordering::Relaxed) == before {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}
