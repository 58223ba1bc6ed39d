//! The tree: a command and all that descends from it, as the runner sees it.
//!
//! In: what the reaper says, and the output. Out: [`Ended`], [`Output`]. Dropping it kills every
//! process of it. Knows nothing of confinement.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::socket::{MsgFlags, Shutdown, send, shutdown};
use nix::unistd::{Pid, pipe2};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::capture::Sink;
use super::spawn::{Order, Streams, channel, collect, duplicate, input_pipe};
use super::starter::Starter;
use super::wire::{Failure, FromReaper, Received, Step, ToReaper, receive};
use super::{Capture, Cause, Ended, Launch, Output, ProcessError, Quota, Stdin, sys};
use crate::clock::Clock;

/// How long output that survivors hold back is waited for after the main process ended. Ours.
const DRAIN: Duration = Duration::from_millis(200);

/// Time between SIGTERM and SIGKILL when a tree is stopped. Ours.
pub(crate) const GRACE: Duration = Duration::from_millis(250);

/// How long a reaper may take for an answer. Killing takes at most three seconds.
const ANSWER: Duration = Duration::from_secs(10);

/// How long a command may take to read what is written to it.
const WRITE: Duration = Duration::from_secs(5);

/// A running process tree.
#[derive(Debug)]
pub(crate) struct Tree {
    program: PathBuf,
    pid: u32,
    /// `None` once the reaper has gone.
    control: Option<AsyncFd<OwnedFd>>,
    /// Lives as long as a tree of it.
    _starter: Arc<Starter>,
    stdin: Option<pipe::Sender>,
    feeder: Option<JoinHandle<()>>,
    watcher: Option<JoinHandle<()>>,
    /// Whether the watcher has stopped the tree.
    is_over: Arc<AtomicBool>,
    output: Option<Captured>,
    ended: Option<Ended>,
    is_stopping: bool,
    unkilled: u32,
    count: Option<u32>,
}

#[derive(Debug)]
struct Captured {
    sink: Arc<Mutex<Sink>>,
    reader: JoinHandle<()>,
}

impl Tree {
    /// Starts `launch` with its output captured; returns when it has been executed.
    pub(crate) async fn start(
        launch: &Launch,
        (starter, order): (&Arc<Starter>, &Order<'_>),
        stdin: Stdin,
        capture: &Capture,
    ) -> Result<Self, ProcessError> {
        let sink = Sink::new(capture).map_err(|source| ProcessError::Log {
            path: capture.log.clone().unwrap_or_default(),
            source,
        })?;
        let (from, to) = pipe2(OFlag::O_CLOEXEC).map_err(channel("make an output pipe"))?;
        let (input, ours) = match stdin {
            Stdin::Null => (null()?, None),
            Stdin::Open => {
                let (theirs, ours) = feeding_pipe()?;
                (theirs, Some((ours, None)))
            }
            Stdin::Bytes(bytes) => {
                let (theirs, ours) = feeding_pipe()?;
                (theirs, Some((ours, Some(bytes))))
            }
        };
        let stdout = match &capture.stdout {
            Some(path) => OwnedFd::from(
                File::options()
                    .write(true)
                    .open(path)
                    .map_err(|source| ProcessError::Log { path: path.clone(), source })?,
            ),
            None => duplicate(&to)?,
        };
        let streams = Streams { stdin: input, stdout, stderr: to };
        let mut tree = Self::attach(launch, (starter, order), streams).await?;
        let receiver = pipe::Receiver::from_owned_fd(from)
            .map_err(|source| ProcessError::Channel { what: "watch the output pipe", source })?;
        let sink = Arc::new(Mutex::new(sink));
        let reader = tokio::spawn(collect(receiver, Arc::clone(&sink)));
        tree.output = Some(Captured { sink, reader });
        match ours {
            Some((mut ours, Some(bytes))) => {
                // A command that doesn't read its input has closed it; that is its own affair.
                tree.feeder = Some(tokio::spawn(async move { drop(ours.write_all(&bytes).await) }));
            }
            Some((ours, None)) => tree.stdin = Some(ours),
            None => {}
        }
        Ok(tree)
    }

    /// Starts `launch` on the streams that are given; nothing is captured.
    pub(crate) async fn attach(
        launch: &Launch,
        (starter, order): (&Arc<Starter>, &Order<'_>),
        streams: Streams,
    ) -> Result<Self, ProcessError> {
        let control = starter.order(launch, order, &streams)?;
        drop(streams);
        let control = sys::watch(control)
            .map_err(|source| ProcessError::Channel { what: "watch the control socket", source })?;
        let mut tree = Self {
            program: launch.program.clone(),
            pid: 0,
            control: Some(control),
            _starter: Arc::clone(starter),
            stdin: None,
            feeder: None,
            watcher: None,
            is_over: Arc::default(),
            output: None,
            ended: None,
            is_stopping: false,
            unkilled: 0,
            count: None,
        };
        loop {
            let next = timeout(ANSWER, tree.hear()).await.map_err(|_| tree.silent())??;
            match next {
                Some(FromReaper::Here) => {}
                Some(FromReaper::Started) => {
                    tree.watch(order.quota)?;
                    return Ok(tree);
                }
                Some(FromReaper::Failed(failure)) => return Err(tree.failed(failure, launch)),
                Some(
                    FromReaper::Ready
                    | FromReaper::Ended { .. }
                    | FromReaper::Count(_)
                    | FromReaper::Gone { .. },
                )
                | None => return Err(tree.lost()),
            }
        }
    }

    /// Stops the tree when its folder takes more than it may, whether anybody waits or not.
    fn watch(&mut self, quota: Option<&Quota>) -> Result<(), ProcessError> {
        let (Some(quota), Some(control)) = (quota.cloned(), &self.control) else { return Ok(()) };
        let control = duplicate(control.get_ref())?;
        let is_over = Arc::clone(&self.is_over);
        self.watcher = Some(tokio::spawn(async move {
            quota.exceeded().await;
            is_over.store(true, Ordering::Relaxed);
            let stop = ToReaper::Stop(Duration::ZERO).encode();
            let _ = send(control.as_raw_fd(), &stop, MsgFlags::MSG_NOSIGNAL);
        }));
        Ok(())
    }

    /// Process id of the command.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// How it ended, once [`Tree::wait`] or [`Tree::stop`] has seen it.
    pub(crate) fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }

    /// Waits until the main process has ended, at most so long. Returns whether it has.
    ///
    /// Cancellation loses nothing.
    pub(crate) async fn wait(&mut self, at_most: Duration) -> Result<bool, ProcessError> {
        if self.ended.is_some() {
            return Ok(true);
        }
        let clock = Clock::start();
        while self.ended.is_none() {
            let left = at_most.saturating_sub(clock.elapsed());
            match timeout(left, self.hear()).await {
                Err(_) => return Ok(false),
                Ok(message) => match message? {
                    Some(message) => self.note(message).await,
                    None => return Err(self.lost()),
                },
            }
        }
        Ok(true)
    }

    /// Output since the last look.
    pub(crate) fn take_output(&mut self) -> Output {
        self.output.as_ref().map_or_else(Output::default, |captured| lock(&captured.sink).take())
    }

    /// Writes to the open stdin.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<(), ProcessError> {
        let Some(stdin) = &mut self.stdin else { return Err(ProcessError::StdinClosed) };
        let mut written = 0;
        let all = async {
            while written < bytes.len() {
                written += stdin.write(&bytes[written..]).await?;
            }
            Ok::<_, io::Error>(())
        };
        let result = timeout(WRITE, all).await;
        match result {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => {
                self.stdin = None;
                Err(ProcessError::StdinClosed)
            }
            Err(_) => Err(ProcessError::StdinFull { written, length: bytes.len(), after: WRITE }),
        }
    }

    /// Ends the command's input.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// SIGINT to the command's process group.
    pub(crate) fn interrupt(&self) {
        self.tell(ToReaper::Interrupt);
    }

    /// Descendants that are alive, the main process not counted; 0 once all are gone.
    pub(crate) async fn survivors(&mut self) -> Result<u32, ProcessError> {
        self.count = None;
        self.tell(ToReaper::Count);
        let answer = timeout(ANSWER, async {
            while self.count.is_none() {
                match self.hear().await? {
                    Some(message) => self.note(message).await,
                    None => return Ok(self.unkilled),
                }
            }
            Ok(self.count.unwrap_or(0))
        })
        .await;
        answer.map_err(|_| self.silent())?
    }

    /// SIGTERM, `grace`, SIGKILL of every descendant. Returns how the main process ended, when
    /// nothing of the tree is alive.
    pub(crate) async fn stop(&mut self, grace: Duration) -> Result<Ended, ProcessError> {
        self.stdin = None;
        self.is_stopping = true;
        self.tell(ToReaper::Stop(grace));
        let gone = timeout(ANSWER, async {
            while let Some(message) = self.hear().await? {
                self.note(message).await;
            }
            Ok(())
        })
        .await;
        gone.map_err(|_| self.silent())??;
        if self.unkilled > 0 {
            return Err(ProcessError::Unkillable {
                program: self.program.clone(),
                count: self.unkilled,
            });
        }
        if let Some(captured) = &mut self.output {
            if !captured.reader.is_finished() {
                drop(timeout(DRAIN, &mut captured.reader).await);
            }
            let total = lock(&captured.sink).total();
            if let Some(ended) = &mut self.ended {
                ended.output_bytes = total;
            }
        }
        self.ended.clone().ok_or_else(|| self.lost())
    }

    async fn note(&mut self, message: FromReaper) {
        match message {
            FromReaper::Ended { status, timed_out, wall, cpu, survivors } => {
                self.ended = Some(Ended {
                    pid: self.pid,
                    exit_code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
                    signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
                    cause: if timed_out {
                        Cause::TimedOut
                    } else if self.is_over.load(Ordering::Relaxed) {
                        Cause::Limit
                    } else if self.is_stopping {
                        Cause::Stopped
                    } else {
                        Cause::Exited
                    },
                    wall,
                    cpu,
                    output_bytes: 0,
                    survivors,
                });
                self.drain().await;
            }
            FromReaper::Count(count) => self.count = Some(count),
            FromReaper::Gone { unkilled } => {
                self.unkilled = unkilled;
                self.count = Some(unkilled);
            }
            FromReaper::Ready | FromReaper::Here | FromReaper::Started | FromReaper::Failed(_) => {}
        }
    }

    /// Reads what is still in the pipe: to its end, or as long as survivors may hold it.
    async fn drain(&mut self) {
        if let Some(captured) = &mut self.output {
            if !captured.reader.is_finished() {
                tokio::select! {
                    _ = &mut captured.reader => {}
                    () = sleep(DRAIN) => {}
                }
            }
            let total = lock(&captured.sink).total();
            if let Some(ended) = &mut self.ended {
                ended.output_bytes = total;
            }
        }
    }

    /// The reaper's next message; `None` when it has gone.
    async fn hear(&mut self) -> Result<Option<FromReaper>, ProcessError> {
        let Some(control) = &self.control else { return Ok(None) };
        let Received { message, pid, .. } = control
            .async_io(Interest::READABLE, |fd| Ok(receive(fd.as_fd())?))
            .await
            .map_err(|source| ProcessError::Channel { what: "hear the inner stage", source })?;
        match message {
            None => self.control = None,
            Some(FromReaper::Here) => self.pid = pid,
            Some(_) => {}
        }
        Ok(message)
    }

    fn tell(&self, message: ToReaper) {
        if let Some(control) = &self.control {
            // A reaper that is gone is noticed by the next `hear`.
            let _ = send(control.as_raw_fd(), &message.encode(), MsgFlags::MSG_NOSIGNAL);
        }
    }

    fn failed(&self, failure: Failure, launch: &Launch) -> ProcessError {
        let source = io::Error::from_raw_os_error(failure.errno);
        let program = self.program.clone();
        match failure.step {
            Step::Exec if failure.errno == libc::ENOENT => ProcessError::NotFound { program },
            Step::Exec => ProcessError::NotExecutable { program, source },
            Step::Cwd => ProcessError::Cwd { cwd: launch.cwd.clone(), source },
            step @ (Step::Receive
            | Step::Namespaces
            | Step::Mounts
            | Step::Supervisor
            | Step::Fork
            | Step::Session
            | Step::Streams
            | Step::Signals
            | Step::Limits
            | Step::Capabilities
            | Step::NoNewPrivs
            | Step::Landlock
            | Step::Seccomp
            | Step::Descriptors) => ProcessError::Setup { program, step, source },
        }
    }

    fn lost(&mut self) -> ProcessError {
        self.control = None;
        if self.ended.is_none()
            && let Some(group) = i32::try_from(self.pid).ok().filter(|group| *group > 0)
        {
            // Without its reaper the command would run on. What left its group is found by its
            // mark, at the latest by the next start.
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        let status = "its control socket ended".to_owned();
        ProcessError::Lost { program: self.program.clone(), status }
    }

    fn silent(&self) -> ProcessError {
        ProcessError::Silent { program: self.program.clone(), after: ANSWER }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        for task in [&self.feeder, &self.watcher].into_iter().flatten() {
            task.abort();
        }
        // The end of what we send is the order to kill; the workspace must not be touched before it
        // is carried out, so this waits, in the usual case less than a millisecond.
        if let Some(control) = self.control.take() {
            let control = control.into_inner();
            let _ = shutdown(control.as_raw_fd(), Shutdown::Write);
            let clock = Clock::start();
            while clock.elapsed() < ANSWER {
                let mut fds = [PollFd::new(control.as_fd(), PollFlags::POLLIN)];
                let _ = poll(&mut fds, PollTimeout::from(100_u8));
                match receive(control.as_fd()) {
                    Ok(Received { message: Some(_), .. }) | Err(Errno::EAGAIN) => {}
                    Ok(Received { message: None, .. }) | Err(_) => break,
                }
            }
        }
        if let Some(captured) = &self.output {
            captured.reader.abort();
            lock(&captured.sink).close_log();
        }
    }
}

fn lock(sink: &Mutex<Sink>) -> std::sync::MutexGuard<'_, Sink> {
    sink.lock().unwrap_or_else(PoisonError::into_inner)
}

fn null() -> Result<OwnedFd, ProcessError> {
    let file = File::open("/dev/null")
        .map_err(|source| ProcessError::Channel { what: "open /dev/null", source })?;
    Ok(file.into())
}

fn feeding_pipe() -> Result<(OwnedFd, pipe::Sender), ProcessError> {
    let (theirs, ours) = input_pipe()?;
    let ours = pipe::Sender::from_owned_fd(ours)
        .map_err(|source| ProcessError::Channel { what: "watch the input pipe", source })?;
    Ok((theirs, ours))
}
