//! `lumos serve-model` as a process.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use crate::support::lumos;

/// A server that runs until it is dropped.
pub(crate) struct Serving {
    pub(crate) child: Child,
    pub(crate) url: String,
    /// Its output about its models.
    pub(crate) models: Vec<String>,
}

impl Serving {
    pub(crate) fn start(models: &[&str]) -> Self {
        let mut command = lumos();
        command.args(["serve-model", "--listen", "127.0.0.1:0", "--threads", "1"]);
        command.args(models.iter().flat_map(|model| ["--model", model]));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let (mut models, mut url) = (Vec::new(), None);
        while let Some(line) = lines.next().filter(|_| url.is_none()) {
            match line.strip_prefix("listening on ").and_then(|rest| rest.split_once(';')) {
                Some((address, _)) => {
                    url = Some(address.to_owned());
                    break;
                }
                None => models.push(line),
            }
        }
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, url: url.unwrap_or_else(|| panic!("no server: {models:?}")), models }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
