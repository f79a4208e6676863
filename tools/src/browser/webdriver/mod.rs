//! Control of browsers over WebDriver.
//!
//! A [`BrowserPool`] has as many sessions as fit on the machine; further requests wait in order. A session is
//! a browser with a fresh profile: Chromium with a `chromedriver` that this process starts, or a session of a
//! remote WebDriver server (a Selenium grid). [`BrowserPool::session`] returns a [`BrowserLease`], whose commands
//! load pages, find elements by role and text, type, click and read. Every command has a client-side time
//! limit, because a browser in an endless script does not respond, and every response a size limit, because pages
//! can make it large.
//!
//! A command fails in one of two ways. A [`BrowserRefusal`] is about the page or the request (an element not
//! found, an address that is not allowed) and leaves the session usable. A [`BrowserFault`] is about the
//! infrastructure, ends the session, and can be retried.
//!
//! Processes are always killed: each driver has a process group that is killed when its session is dropped,
//! and groups that a killed worker left behind are killed by the next pool on the machine.

mod connection;
mod driver;
mod error;
mod hosts;
mod leftovers;
mod page;
mod pool;
mod session;

pub(crate) use error::{BrowserError, BrowserFault, BrowserRefusal};
pub(crate) use page::{BrowserLease, PageElement, Screenshots};
pub(crate) use pool::BrowserPool;

#[cfg(test)]
pub(crate) mod tests {
    //! Browsers: normal use of pages, hostile pages, and cleanup after processes that ended.
    //!
    //! These tests require `chromium` and `chromedriver`; if one of them is missing, they are skipped with a
    //! message.

    pub(crate) mod support;

    mod hostile;
    mod lifetime;
    mod use_of_pages;
}
