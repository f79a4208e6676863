//! Data sets: loaders, scores and metrics.
