//! A network of its own for one process, so that it can be cut off.

use std::process::{Command, Stdio};

/// A network namespace, joined to this one by a pair of virtual interfaces.
pub(crate) struct Namespace {
    name: String,
    interface: String,
    outside: String,
}

impl Namespace {
    /// `None` where namespaces cannot be made.
    pub(crate) fn make(seed: u64) -> Option<Self> {
        let id = (u64::from(std::process::id()) ^ (seed << 3)) % 200 + 1;
        let name = format!("lumos-{}-{id}", std::process::id());
        let interface = format!("lumos{id}");
        let (outside, inside) = (format!("10.213.{id}.1"), format!("10.213.{id}.2"));
        let made = Self { name: name.clone(), interface: interface.clone(), outside: outside.clone() };
        let steps: [&[&str]; 8] = [
            &["netns", "add", &name],
            &["link", "add", &interface, "type", "veth", "peer", "name", "inside0", "netns", &name],
            &["addr", "add", &format!("{outside}/24"), "dev", &interface],
            &["link", "set", &interface, "up"],
            &["-n", &name, "addr", "add", &format!("{inside}/24"), "dev", "inside0"],
            &["-n", &name, "link", "set", "inside0", "up"],
            &["-n", &name, "link", "set", "lo", "up"],
            &["netns", "exec", &name, "true"],
        ];
        // Dropped on failure, which takes away what was made so far.
        steps.iter().all(|step| ip(step)).then_some(made)
    }

    /// This side's address.
    pub(crate) fn outside(&self) -> &str {
        &self.outside
    }

    /// The same command, inside.
    pub(crate) fn command(&self, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.name]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }

    /// Cuts the network, or mends it.
    pub(crate) fn cut(&self, cut: bool) {
        ip(&["link", "set", &self.interface, if cut { "down" } else { "up" }]);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        ip(&["link", "del", &self.interface]);
        ip(&["netns", "del", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> bool {
    Command::new("ip").args(arguments).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
