//! Checks of how connections end, in one direction or in both, and what is reported about it.

use std::mem;

use super::Subject;
use super::scene::{End, Scene};
use super::side::{Seen, Side};
use crate::{Endpoint, Outcome};

/// How many times another process may have taken the port where nobody should listen.
const TRIES: usize = 3;

fn both_closed(server: &Side, accepted: Endpoint, client: &Side, endpoint: Endpoint) -> bool {
    server.closed(accepted).is_some() && client.closed(endpoint).is_some()
}

/// Accepted messages are written before a connection closes, and both sides report the end.
///
/// # Panics
///
/// If data is lost, or the reported reasons are wrong (see [`Reason`](crate::Reason)).
pub fn what_waits_is_written_before_closing(subject: &Subject) {
    for mut scene in subject.scenes("what waits is written before a connection is closed") {
        let (accepted, endpoint) = scene.connect();
        let sent = scene.send_until_queued(End::Client, endpoint);
        scene.client.handle.close(endpoint);
        scene.until("closed", |server, client| both_closed(server, accepted, client, endpoint));
        scene.expects_bytes(End::Server, accepted, &sent);
        scene.expects_end(End::Client, endpoint, "closed here");
        scene.expects_end(End::Server, accepted, scene.ended());
        expects_closed(&scene, End::Client, endpoint);
    }
}

#[track_caller]
fn expects_closed(scene: &Scene<'_>, at: End, endpoint: Endpoint) {
    let outcome = at.of(&scene.server, &scene.client).handle.send(endpoint, b"late");
    scene.expects(outcome == Outcome::Closed, format_args!("a send after the end returned {outcome:?}"));
}

/// When a node is dropped, its peers report that their connections have ended.
///
/// # Panics
///
/// If they do not.
pub fn nodes_that_are_gone_end_connections(subject: &Subject) {
    for mut scene in subject.scenes("the peers of a node that is gone see the end") {
        let (_, endpoint) = scene.connect();
        drop(mem::take(&mut scene.server));
        scene.until("closed", |_, client| client.closed(endpoint).is_some());
        scene.expects_end(End::Client, endpoint, "ended by the peer");
    }
}

/// Connecting where nobody listens fails: with an error of `connect` that names the address, or
/// with `Closed`.
///
/// # Panics
///
/// If this does not hold, or if another process listened there every time.
pub fn nobody_listening_is_told(subject: &Subject) {
    for mut scene in subject.scenes("it is reported that nobody listens") {
        let reported = (0..TRIES).any(|_| is_reported(&mut scene));
        scene.expects(reported, format_args!("it was connected {TRIES} times"));
    }
}

/// Whether the failure is reported. Another process may have got the port meanwhile.
fn is_reported(scene: &mut Scene<'_>) -> bool {
    let (listener, at) = scene.listen();
    scene.server.handle.close(listener);
    scene.until("the listener closed", |server, _| server.closed(listener).is_some());
    scene.expects_end(End::Server, listener, "closed here");
    let endpoint = match scene.client.handle.connect_with(&at, &scene.options.1) {
        Ok(endpoint) => endpoint,
        Err(error) => {
            let reported = error.to_string();
            scene.expects(reported.contains(&at.to_string()), format_args!("{reported:?} does not name {at}"));
            return true;
        }
    };
    let connected = Seen::Connected(endpoint);
    scene.until("reported", |_, client| client.closed(endpoint).is_some() || client.seen.contains(&connected));
    if let Some(reason) = scene.client.closed(endpoint) {
        scene.expects(reason.starts_with("not connected: "), format_args!("the reported reason was {reason:?}"));
    }
    !scene.client.seen.contains(&connected)
}

/// Scenes with a half-open listener and a client that is not half-open, without WebSockets.
fn half_open<'a>(subject: &'a Subject, promise: &'static str) -> impl Iterator<Item = Scene<'a>> {
    let scenes = subject.scenes(promise).filter(|scene| !scene.is_websocket());
    scenes.map(|mut scene| {
        scene.options.0.half_open = true;
        scene
    })
}

/// After one side finishes, the other direction of the connection continues for as long as a
/// [half-open](crate::Options::half_open) peer likes. WebSockets have no half-close and are not
/// checked.
///
/// # Panics
///
/// If it does not.
pub fn answers_may_be_longer_than_questions(subject: &Subject) {
    for mut scene in half_open(subject, "a connection that was finished continues in the other direction") {
        let (accepted, endpoint) = scene.connect();
        let question = scene.send_until_queued(End::Client, endpoint);
        scene.client.handle.finish(endpoint);
        expects_closed(&scene, End::Client, endpoint);
        let finished = Seen::Finished(accepted);
        scene.until("finished", |server, _| server.seen.contains(&finished));
        scene.expects_bytes(End::Server, accepted, &question);
        let drained = scene.client.count(&Seen::Drained(endpoint));
        scene.expects(drained > 0, format_args!("Drained was never reported"));
        let mut answer = scene.send_until_queued(End::Server, accepted);
        scene.until("an answer", |_, client| client.received(endpoint) >= answer.len());
        // Another message shows that the connection has stayed open.
        scene.send(End::Server, accepted, b"another");
        answer.extend(b"another");
        scene.until("another answer", |_, client| client.received(endpoint) >= answer.len());
        scene.expects_bytes(End::Client, endpoint, &answer);
        scene.expects(
            scene.server.closed(accepted).or(scene.client.closed(endpoint)).is_none(),
            format_args!("it was closed before its end: {:?} and {:?}", scene.server, scene.client),
        );
        scene.server.handle.finish(accepted);
        scene.until("closed", |server, client| both_closed(server, accepted, client, endpoint));
        scene.expects_end(End::Server, accepted, "ended by the peer");
        scene.expects_end(End::Client, endpoint, "ended by the peer");
        let times = scene.server.count(&finished);
        scene.expects(times == 1, format_args!("the peer's end was reported {times} times"));
    }
}

/// Without half-open, the queue is still written after the peer's end. WebSockets are not checked.
///
/// # Panics
///
/// If it is not.
pub fn ends_without_half_open_write_what_waits(subject: &Subject) {
    for mut scene in half_open(subject, "what waits is written after the peer has ended") {
        scene.options.0.half_open = false;
        let (accepted, endpoint) = scene.connect();
        let sent = scene.send_until_queued(End::Server, accepted);
        scene.client.handle.finish(endpoint);
        scene.until("closed", |server, client| both_closed(server, accepted, client, endpoint));
        scene.expects_bytes(End::Client, endpoint, &sent);
        scene.expects_end(End::Client, endpoint, "ended by the peer");
        scene.expects_end(End::Server, accepted, "ended by the peer");
        let times = scene.server.count(&Seen::Finished(accepted));
        scene.expects(times == 0, format_args!("Finished was reported without half-open"));
    }
}

/// A connection that is finished before it is open sends its queue, and nothing else. WebSockets
/// are not checked.
///
/// # Panics
///
/// If it does not.
pub fn finished_early_sends_what_waits(subject: &Subject) {
    for mut scene in half_open(subject, "what is finished before it is open sends its queue") {
        let (listener, at) = scene.listen();
        let endpoint = scene.begin(&at);
        scene.send(End::Client, endpoint, b"early");
        scene.client.handle.finish(endpoint);
        expects_closed(&scene, End::Client, endpoint);
        scene.until("finished", |server, _| server.seen.iter().any(|seen| matches!(seen, Seen::Finished(_))));
        let accepted = scene.server.accepted(listener)[0];
        scene.expects_bytes(End::Server, accepted, b"early");
        scene.server.handle.close(accepted);
        scene.until("closed", |server, client| both_closed(server, accepted, client, endpoint));
        scene.expects_end(End::Server, accepted, "closed here");
        scene.expects_end(End::Client, endpoint, "ended by the peer");
    }
}
