//! Bodies that do not come with their message.

use std::time::Duration;

use super::{Delivery, Shared};
use crate::nats::NatsError;
use crate::nats::codec::Unfit;
use crate::nats::complaints::Kind;

/// How often a message is delivered before a body that is not there is believed to be gone: a copy of the store may
/// lag behind.
const BODY_DELIVERIES: u32 = 3;

/// When a body that was not there is looked for again.
const AGAIN: Duration = Duration::from_secs(1);

/// Takes a body that was fetched, or disposes of its message.
pub(super) fn settle(shared: &Shared, mut delivery: Delivery, body: Result<Vec<u8>, NatsError>) {
    let link = &shared.link;
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
            let gone = match &error {
                NatsError::Damaged(_) => true,
                NatsError::Missing(_) => delivery.deliveries >= BODY_DELIVERIES,
                _ => false,
            };
            if gone {
                let why = format!("a message's body cannot be had: {error}: dropped");
                delivery.dismiss(link, &Unfit::new(Kind::Body, why));
            } else if let Some(lease) = delivery.lease.take() {
                lease.give_back_after(AGAIN);
            }
        }
    }
}
