//! Drivers over a real etcd and a real nats-server: what the engine promises, with its services.
#![cfg(feature = "services")]

mod kit;

use kit::{Services, Site, key, wait_for};
use overbank_cluster::message::Request;
use overbank_cluster::{NodeId, SessionId};
use std::sync::Arc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

fn establish(sites: &[Site], count: u64) {
    for nth in 0..count {
        let keys = Arc::new([key(nth), key(nth | 1 << 40)]);
        let request = Request::Establish { keys, context: Arc::from([1, 2, 3]), to: None };
        assert!(sites[nth as usize % sites.len()].handle.request(nth, request));
    }
    let all = || sites.iter().map(|site| site.answers(true)).sum::<usize>() as u64 >= count;
    wait_for("answers to all requests", LONG, all);
}

/// Whether packets of every key are handled, wherever they come in.
fn all_handled(sites: &[Site], count: u64) -> bool {
    let keys = (0..count).flat_map(|nth| [key(nth), key(nth | 1 << 40)]);
    keys.into_iter().all(|key| {
        let handled = |ingress: &Site| kit::packet(sites, ingress.node, key).is_some();
        sites.iter().filter(|site| site.is_running()).all(handled)
    })
}

#[test]
fn nodes_share_sessions_over_their_services() {
    let services = Services::start(1);
    let mut sites: Vec<Site> = (0..3).map(|node| services.join(node)).collect();
    for site in &sites {
        wait_for("a live node", LONG, || site.is_ingress());
    }
    establish(&sites, 300);
    wait_for("every packet is handled", LONG, || all_handled(&sites, 300));

    // Moves, with packets all the while: none is lost.
    for nth in (0..300).step_by(2) {
        let session = SessionId(key(nth).hash);
        assert!(sites[1].handle.request(1000 + nth, Request::Move { session, to: None }));
    }
    let before = sites[1].answers(true);
    wait_for("all moves", LONG, || {
        assert!(all_handled(&sites, 300), "a packet was lost to a move");
        sites[1].answers(true) - before.min(150) >= 150
    });

    // A drained node leaves, without a loss.
    assert!(sites[2].handle.drain());
    wait_for("the drained node has left", LONG, || {
        assert!(all_handled(&sites[..2], 300) || sites[2].is_running(), "a packet was lost");
        !sites[2].is_running()
    });
    wait_for("every packet is handled by two", LONG, || all_handled(&sites[..2], 300));

    // A node that dies is taken over after its lease.
    sites[1].handle.stop();
    wait_for("the node has stopped", LONG, || !sites[1].is_running());
    wait_for("every packet is handled by one", LONG, || all_handled(&sites[..1], 300));

    // It comes back under another incarnation, and takes packets again.
    sites[1] = services.join(1);
    wait_for("it is live again", LONG, || sites[1].is_ingress());
    wait_for("every packet is handled again", LONG, || all_handled(&sites[..2], 300));
    assert!(sites.iter().all(|site| site.answers(false) == 0), "a request was refused");
}

#[test]
fn without_its_services_a_cluster_goes_on_and_resumes() {
    let mut services = Services::start(1);
    let sites: Vec<Site> = (0..3).map(|node| services.join(node)).collect();
    for site in &sites {
        wait_for("a live node", LONG, || site.is_ingress());
    }
    establish(&sites, 100);
    wait_for("every packet is handled", LONG, || all_handled(&sites, 100));
    // Without NATS: packets go on, changes are not answered.
    services.stop_nats(0);
    let (session, answered) = (SessionId(key(0).hash), sites[0].answers(true));
    sites[0].handle.request(5000, Request::Move { session, to: None });
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(sites[0].answers(true), answered, "nothing was answered without the log");
    services.start_nats(0);
    wait_for("every packet is handled after NATS is back", LONG, || all_handled(&sites, 100));
    // Without etcd, for longer than a lease: all nodes see each other, so they go on.
    wait_for("beats are back", LONG, || sites.iter().all(Site::is_ingress));
    std::thread::sleep(Duration::from_secs(1));
    services.stop_etcd(0);
    let end = std::time::Instant::now() + Duration::from_secs(5);
    while std::time::Instant::now() < end {
        assert!(all_handled(&sites, 100), "a packet was lost while etcd was away");
        std::thread::sleep(Duration::from_millis(100));
    }
    services.start_etcd(0);
    establish_more(&sites);
    wait_for("every packet is handled after etcd is back", LONG, || all_handled(&sites, 100));
}

/// Changes are answered again.
fn establish_more(sites: &[Site]) {
    let before = sites[0].answers(true);
    let mut number = 7000 + before as u64 * 1000;
    wait_for("changes are answered again", Duration::from_secs(40), || {
        let nth = number;
        let request =
            Request::Establish { keys: Arc::new([key(nth)]), context: Arc::new([]), to: None };
        sites[0].handle.request(number, request);
        number += 1;
        sites[0].answers(true) > before
    });
}

#[test]
fn other_settings_are_refused_by_name() {
    let services = Services::start(1);
    let first = services.join(0);
    wait_for("a live node", LONG, || first.is_ingress());
    let mut options = services.options(NodeId(1));
    options.settings.partitions *= 2;
    let error = services.try_join(options).err().expect("refused").to_string();
    assert_eq!(error, "partitions is 8 in the cluster and 16 here; all nodes need the same");
    let mut options = services.options(NodeId(1));
    options.cluster = "a.b".to_owned();
    let error = services.try_join(options).err().expect("refused").to_string();
    assert!(error.starts_with("\"a.b\": a cluster's name has"), "{error}");
}

/// Three of each: the log goes on without the leader of its stream, and a deposed owner's batch is
/// refused.
#[test]
fn a_lost_server_of_three_loses_nothing_and_a_stale_owner_is_refused() {
    let mut services = Services::start(3);
    let sites: Vec<Site> = (0..4).map(|node| services.join(node)).collect();
    for site in &sites {
        wait_for("a live node", LONG, || site.is_ingress());
    }
    establish(&sites, 200);
    wait_for("every packet is handled", LONG, || all_handled(&sites, 200));

    // A stale owner expects a position that was the last one before.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let urls = services.nats_urls();
    let leader = runtime.expect("a runtime").block_on(async {
        let client = async_nats::connect(urls).await.expect("connected");
        let context = async_nats::jetstream::new(client);
        let stream = context.get_stream("overbank-test-log").await.expect("the log");
        let subject = "overbank.test.log.0";
        let last = stream.get_last_raw_message_by_subject(subject).await.expect("batches");
        let mut headers = async_nats::HeaderMap::new();
        let stale = (last.sequence - 1).to_string();
        headers.insert("Nats-Expected-Last-Subject-Sequence", stale.as_str());
        let sent = context.publish_with_headers(subject, headers, "stale".into()).await;
        let error = sent.expect("sent").await.expect_err("refused");
        assert_eq!(
            error.kind(),
            async_nats::jetstream::context::PublishErrorKind::WrongLastSequence,
            "{error}"
        );
        let info = stream.cached_info().cluster.as_ref().expect("a cluster");
        info.leader.clone().expect("a leader")
    });

    let leader: usize = leader.trim_start_matches('n').parse().expect("a server");
    services.stop_nats(leader);
    establish_more(&sites);
    wait_for("every packet is handled without the leader", LONG, || all_handled(&sites, 200));
    services.start_nats(leader);
    services.stop_etcd(0);
    establish_more(&sites);
    wait_for("every packet is handled without a member", LONG, || all_handled(&sites, 200));
    assert!(sites.iter().all(Site::is_running));
}
