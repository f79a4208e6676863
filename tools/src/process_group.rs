//! The process group of a child program, which is killed with all its child processes.

/// A process group. Its leader is a child that has not been reaped, so its number cannot be reused.
#[cfg(unix)]
pub(crate) struct ProcessGroup(rustix::process::Pid);

#[cfg(unix)]
impl ProcessGroup {
    /// The group whose leader is a child.
    pub(crate) fn of(child: u32) -> Option<Self> {
        i32::try_from(child).ok().and_then(rustix::process::Pid::from_raw).map(Self)
    }

    /// Kills all its processes.
    pub(crate) fn kill(&self) {
        let _ = rustix::process::kill_process_group(self.0, rustix::process::Signal::KILL);
    }

    /// Waits until a child has ended, without reaping it.
    pub(crate) fn wait(child: u32) {
        use rustix::process::{WaitId, WaitIdOptions, waitid};

        let Some(Self(child)) = Self::of(child) else { return };
        while let Err(rustix::io::Errno::INTR) =
            waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
        {}
    }
}

#[cfg(not(unix))]
pub(crate) struct ProcessGroup;

#[cfg(not(unix))]
impl ProcessGroup {
    pub(crate) fn of(_: u32) -> Option<Self> {
        None
    }

    pub(crate) fn kill(&self) {}

    pub(crate) fn wait(_: u32) {}
}
