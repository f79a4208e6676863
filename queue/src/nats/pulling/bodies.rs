//! Bodies that are stored separately from their message.

use super::{AGAIN, Delivery, Shared};
use crate::nats::NatsError;
use crate::nats::codec::Unfit;
use crate::nats::complaints::Kind;

/// Adds a fetched body to its message, or dismisses the message if fetching failed.
pub(super) fn settle(shared: &Shared, mut delivery: Delivery, body: Result<Vec<u8>, NatsError>) {
    let mut state = shared.lock();
    state.fetching = state.fetching.saturating_sub(1);
    match body {
        Ok(bytes) if !state.closed => {
            delivery.body = bytes.into();
            state.ready.push_back(delivery);
        }
        Ok(_) => {
            drop(state);
            drop(delivery);
        }
        Err(error) => {
            drop(state);
            if matches!(error, NatsError::Damaged(_) | NatsError::Missing(_)) {
                let why = format!("failed to read the body of a message: {error}");
                delivery.dismiss(shared, &Unfit::new(Kind::Body, why));
            } else if let Some(lease) = delivery.lease.take() {
                lease.give_back_after(AGAIN);
            }
        }
    }
}
