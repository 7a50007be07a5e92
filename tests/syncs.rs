//! An accepted event is synced. A kill does not reveal a missing sync, a trace does.

use crate::support::events::match_begin;
use crate::support::gate::Launch;
use crate::support::strace::{self, Trace, TraceStep, parse_steps};

/// System calls that sync, receive requests or send replies.
const CALLS: &str = "trace=fsync,fdatasync,read,readv,recvfrom,recvmsg,write,writev,sendto,sendmsg";

#[test]
fn every_lone_post_is_synced_before_its_reply() {
    const POSTS: u64 = 25;
    if !strace::is_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let trace = Trace::into(folder.path());
    let gate = Launch::on(&data).under(trace.wrapper(&["-e", CALLS])).start();
    let mut client = gate.client();
    for n in 1..=POSTS {
        client.submit(&match_begin(n, "lone")).processed();
        // A copy is acknowledged too, after its sighting is synced.
        client.submit(&match_begin(n, "lone").attempt(2)).duplicate();
    }
    gate.stop();

    let steps = parse_steps(&trace.read());
    // Before the first post are the syncs of the start and the replies to `/readyz`.
    let first =
        steps.iter().position(|step| *step == TraceStep::Request).expect("posts are traced");
    let rounds: Vec<&[TraceStep]> =
        steps[first..].split(|step| *step == TraceStep::Request).skip(1).collect();
    assert_eq!(rounds.len() as u64, 2 * POSTS, "one round for each post");
    for (post, round) in rounds.iter().enumerate() {
        let reply = round.iter().position(|step| *step == TraceStep::Reply);
        let synced = round.iter().position(|step| *step == TraceStep::Synced);
        assert!(synced.is_some() && synced < reply, "post {post} was answered as {round:?}");
    }
}
