//! A host's name is used once: the process that runs a host answers to its name.

use std::time::Duration;

use anyhow::{Result, bail};
use async_nats::client::Request;
use futures_util::StreamExt;

use super::link::Link;
use crate::config::{Nats, encoded};

/// How long another process may take to answer. The server says at once if there is none.
const ANSWER: Duration = Duration::from_secs(5);

/// Claims a host's name on the server, for as long as the link lives. Without the permission for
/// it, or without a server, nothing is claimed.
///
/// # Errors
///
/// If another process runs the host.
pub(super) async fn claim(link: &Link, nats: &Nats, host: &str) -> Result<()> {
    if !link.is_up() {
        return Ok(());
    }
    let subject = format!("{}.%host.{}", nats.prefix, encoded(host));
    let request = Request::new().payload(bytes::Bytes::new()).timeout(Some(ANSWER));
    if let Ok(other) = link.client.send_request(subject.clone(), request).await {
        let other = String::from_utf8_lossy(&other.payload).into_owned();
        bail!("the host `{host}` runs already, as {other}; end it first, or take another `--host`");
    }
    let system = rustix::system::uname();
    let name = format!("process {} on {}", std::process::id(), system.nodename().to_string_lossy());
    if let Ok(mut requests) = link.client.subscribe(subject).await {
        let client = link.client.clone();
        tokio::spawn(async move {
            while let Some(request) = requests.next().await {
                if let Some(inbox) = request.reply {
                    let _ = client.publish(inbox, name.clone().into()).await;
                }
            }
        });
    }
    // What the server refused of this is no problem of a topic.
    let _ = link.take_refused();
    Ok(())
}
