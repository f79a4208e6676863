//! Plans runs, dispatches work, records outcomes and reports.
