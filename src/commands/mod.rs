//! The commands, one file each.

pub(crate) mod bench;
pub(crate) mod cancel;
pub(crate) mod complete;
pub(crate) mod completions;
pub(crate) mod data;
pub(crate) mod doctor;
pub(crate) mod estimate;
pub(crate) mod fetch;
pub(crate) mod judge;
pub(crate) mod ls;
pub(crate) mod merge;
pub(crate) mod repair;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod score;
pub(crate) mod serve;
pub(crate) mod serve_model;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod tool;
pub(crate) mod verify;
pub(crate) mod worker;
