//! Stop: the wish to end the run, from a signal, seen by every wait (P1).

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use tokio::sync::Notify;

/// Which signal asked for the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM or SIGHUP.
    Terminate,
}

impl Signal {
    /// Name in the transcript.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        }
    }
}

/// The run is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped(pub Signal);

/// Shared wish to stop; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    inner: Rc<(Cell<Option<Signal>>, Notify)>,
}

impl Stop {
    /// Asks every wait to end.
    pub fn ask(&self, signal: Signal) {
        self.inner.0.set(Some(signal));
        self.inner.1.notify_waiters();
    }

    /// The signal, once one came.
    pub fn signal(&self) -> Option<Signal> {
        self.inner.0.get()
    }

    /// Waits for `future`, or for the wish to stop.
    ///
    /// # Errors
    ///
    /// [`Stopped`] when the wish came first; the future is dropped then.
    pub async fn guard<T>(&self, future: impl Future<Output = T>) -> Result<T, Stopped> {
        if let Some(signal) = self.signal() {
            return Err(Stopped(signal));
        }
        let asked = self.inner.1.notified();
        tokio::select! {
            biased;
            () = asked => Err(Stopped(self.signal().unwrap_or(Signal::Terminate))),
            value = future => Ok(value),
        }
    }
}
