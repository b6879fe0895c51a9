//! The source of a topic that is delivered at most once: a subscription in the queue's group.

use std::time::Duration;

use anyhow::{Context, Result};
use async_nats::Subscriber;
use futures_util::StreamExt;
use tokio::time::timeout;

use super::super::outlet::{Next, Outlet};
use super::link::{Link, Signal};
use crate::config::NatsTopic;

/// How long the last messages may take after the end of the subscription.
const LAST: Duration = Duration::from_secs(2);
/// How often the connection is asked for lost messages while none arrive.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// Sends what arrives to the queue, until the source must stop.
///
/// # Errors
///
/// If a ring is broken, or the connection has ended for good.
pub(super) fn run(link: &Link, topic: &NatsTopic, queue: &str, mut outlet: Outlet, drain: &Signal) -> Result<()> {
    link.block_on(async {
        let (subject, queue) = (topic.subject.clone(), queue.to_owned());
        let subscriber = link.client.queue_subscribe(subject, queue).await;
        let mut subscriber = subscriber.context("cannot subscribe")?;
        while !drain.is_set() {
            report_losses(link, &outlet);
            let next = tokio::select! {
                () = drain.wait() => break,
                next = timeout(REPORT_INTERVAL, subscriber.next()) => next,
            };
            let Ok(message) = next else { continue };
            let message = message.context("the connection to the NATS server has ended")?;
            if outlet.send(&message.payload)? == Next::Stop {
                break;
            }
        }
        last(&mut subscriber, &mut outlet).await
    })
}

/// Reports what was lost or refused.
fn report_losses(link: &Link, outlet: &Outlet) {
    let lost = link.take_lost();
    if lost > 0 {
        outlet.dropped(lost);
        tracing::warn!(messages = lost, "messages from the NATS server were lost, since the topic is full");
    }
    if let Some(refused) = link.take_refused() {
        link.problem(format!("the server refuses: {refused}; grant it to the user of this host"));
    }
}

/// Ends the subscription, and sends what has arrived, as far as the queue has space.
async fn last(subscriber: &mut Subscriber, outlet: &mut Outlet) -> Result<()> {
    if !matches!(timeout(LAST, subscriber.drain()).await, Ok(Ok(()))) {
        return Ok(());
    }
    while let Ok(Some(message)) = timeout(LAST, subscriber.next()).await {
        if outlet.offer(&message.payload)? == Next::Stop {
            break;
        }
    }
    Ok(())
}
