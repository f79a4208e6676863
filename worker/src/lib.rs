//! Drives episodes: model backends, tools, sessions.
