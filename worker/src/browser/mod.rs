//! Real browsers, driven over WebDriver as a person would use them.
//!
//! A [`BrowserPool`] holds as many sessions as the machine can carry; whoever asks for more waits in order. A session
//! is a browser of its own with a fresh profile: Chromium behind a `chromedriver` that this process starts, or one of
//! a server elsewhere (a Selenium grid). [`BrowserPool::session`] gives a [`Lease`], whose commands load pages, find
//! elements by role and text, type, click and read. Every command is bounded in time on this side, because a browser
//! that is caught in an endless script answers nobody.
//!
//! A command that fails says whose doing it was: a [`Refusal`] is about the page and what was asked of it (an element
//! that is not there, an address that is not allowed) and leaves the session usable; a [`BrowserFault`] is about the
//! infrastructure, ends the session, and is worth another attempt.
//!
//! What is started ends: each driver has a process group that is killed when its session is dropped, and groups that
//! a killed worker has left behind are killed by the next pool on the machine.

mod capacity;
mod command;
mod driver;
mod error;
mod hosts;
mod leftovers;
mod page;
mod pool;
mod session;
mod settings;

pub use error::{BrowserError, BrowserFault, Refusal};
pub use hosts::AllowedHosts;
pub use page::{Element, Lease};
pub use pool::BrowserPool;
pub use settings::{BrowserName, BrowserSettings, UnknownBrowser};
