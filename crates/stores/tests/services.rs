//! Drivers over a real etcd and a real nats-server: what the engine promises, with its services.
#![cfg(feature = "services")]

mod kit;

use futures_util::StreamExt;
use kit::{LONG, PARTITIONS, Services, Site, key, wait_for};
use overbank_cluster::message::Request;
use overbank_cluster::{Key, NodeId, Partition, SessionId, Settings};
use overbank_stores::{End, Options};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

fn establish(sites: &[Site], numbers: std::ops::Range<u64>) {
    for (at, site) in sites.iter().enumerate() {
        let own = numbers.clone().filter(|nth| *nth as usize % sites.len() == at);
        let request = |nth: u64| {
            let keys = Arc::new([key(nth), key(nth | 1 << 40)]);
            (nth, Request::Establish { keys, context: Arc::from([1, 2, 3]), to: None })
        };
        site.ask(own.map(request).collect(), || {});
    }
}

/// Establishes sessions of one partition with the longest contexts, all asked for at once; returns
/// their keys, and the length of the longest message of the log.
fn establish_long(services: &Services, site: &Site) -> (Vec<Key>, usize) {
    let runtime = kit::runtime();
    let mut log = runtime.block_on(async {
        let client = async_nats::connect(services.nats_urls()).await.expect("connected");
        let log = client.subscribe("overbank.test.log.0").await.expect("subscribed");
        client.flush().await.expect("flushed");
        log
    });
    let keys = (1 << 30..).map(key).filter(|key| Partition::of(key.hash, PARTITIONS).0 == 0);
    let keys: Vec<Key> = keys.take(200).collect();
    let context: Arc<[u8]> = vec![7; Settings::default().context_max].into();
    let request = |(nth, key): (u64, &Key)| {
        (nth, Request::Establish { keys: Arc::new([*key]), context: context.clone(), to: None })
    };
    site.ask((5000..).zip(&keys).map(request).collect(), || {});
    let longest = runtime.block_on(async {
        let mut longest = 0;
        while let Ok(Some(message)) = timeout(Duration::from_millis(100), log.next()).await {
            longest = longest.max(message.payload.len());
        }
        longest
    });
    (keys, longest)
}

/// Whether packets of every session are handled, wherever they come in.
fn all_handled(sites: &[Site], count: u64) -> bool {
    handled(sites, (0..count).flat_map(|nth| [key(nth), key(nth | 1 << 40)]))
}

fn handled(sites: &[Site], keys: impl IntoIterator<Item = Key>) -> bool {
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
    establish(&sites, 0..300);
    wait_for("every packet is handled", LONG, || all_handled(&sites, 300));

    // The longest contexts fill messages, which NATS takes: 1 MiB at most.
    let (long, longest) = establish_long(&services, &sites[0]);
    assert!((1 << 19..=1 << 20).contains(&longest), "{longest} bytes");
    wait_for("every long session is handled", LONG, || handled(&sites, long.iter().copied()));

    // Moves, with packets all the while: none is lost.
    let move_one =
        |nth: u64| (1000 + nth, Request::Move { session: SessionId(key(nth).hash), to: None });
    sites[1].ask((0..300).step_by(2).map(move_one).collect(), || {
        assert!(all_handled(&sites, 300), "a packet was lost to a move");
    });

    // A drained node leaves, without a loss.
    assert!(sites[2].handle.drain(None));
    wait_for("the drained node has left", LONG, || {
        assert!(all_handled(&sites[..2], 300) || sites[2].is_running(), "a packet was lost");
        !sites[2].is_running()
    });
    assert_eq!(sites[2].end(), Some(Ok(End::Drained)));
    wait_for("every packet is handled by two", LONG, || all_handled(&sites[..2], 300));
    wait_for("so are long sessions", LONG, || handled(&sites[..2], long.iter().copied()));

    // A node that dies is taken over after its lease.
    sites[1].handle.stop();
    wait_for("the node has stopped", LONG, || !sites[1].is_running());
    wait_for("every packet is handled by one", LONG, || all_handled(&sites[..1], 300));

    // Snapshots have taken the place of most of the log: a node that begins needs them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (kept, last) = runtime.expect("a runtime").block_on(async {
        let client = async_nats::connect(services.nats_urls()).await.expect("connected");
        let context = async_nats::jetstream::new(client);
        let stream = context.get_stream("overbank-test-log").await.expect("the log");
        let state = &stream.cached_info().state;
        (state.messages, state.last_sequence)
    });
    assert!(kept < last, "{kept} of {last} messages are left");

    // It comes back under another incarnation, and takes packets again.
    sites[1] = services.join(1);
    wait_for("it is live again", LONG, || sites[1].is_ingress());
    wait_for("every packet is handled again", LONG, || all_handled(&sites[..2], 300));
}

#[test]
fn without_its_services_a_cluster_goes_on_and_resumes() {
    let mut services = Services::start(1);
    let sites: Vec<Site> = (0..3).map(|node| services.join(node)).collect();
    for site in &sites {
        wait_for("a live node", LONG, || site.is_ingress());
    }
    establish(&sites, 0..100);
    wait_for("every packet is handled", LONG, || all_handled(&sites, 100));
    // Without NATS: packets go on, changes are not answered.
    services.stop_nats(0);
    let session = SessionId(key(0).hash);
    sites[0].handle.request(5000, Request::Move { session, to: None });
    std::thread::sleep(Duration::from_secs(2));
    assert!(all_handled(&sites, 100), "a packet was lost while NATS was away");
    let done = matches!(sites[0].answer(5000), Some(Ok(_)));
    assert!(!done, "nothing is done without the log");
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
    establish(&sites, 100..130);
    wait_for("every packet is handled after etcd is back", LONG, || all_handled(&sites, 100));
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
    establish(&sites, 0..200);
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
    establish(&sites, 200..230);
    wait_for("every packet is handled without the leader", LONG, || all_handled(&sites, 200));
    services.start_nats(leader);
    services.stop_etcd(0);
    establish(&sites, 230..260);
    wait_for("every packet is handled without a member", LONG, || all_handled(&sites, 200));
    assert!(sites.iter().all(Site::is_running));

    // Servers that are killed one after the other, or all at once, have all that they had: a node
    // that begins then finds every session. (It would not, had the log been purged.)
    for server in 0..3 {
        wait_for("all servers have all of the log", LONG, || are_current(&services));
        services.stop_nats(server);
        let first = 260 + 10 * server as u64;
        establish(&sites, first..first + 10);
        services.start_nats(server);
    }
    services.start_etcd(0);
    let mut sites = sites;
    sites.push(services.join(4));
    wait_for("a node that begins", LONG, || sites[4].is_ingress());
    wait_for("it knows of every session", LONG, || all_handled(&sites, 290));
    let before = positions(&services).0;
    let mut next = 290;
    wait_for("batches are deleted behind snapshots", LONG, || {
        establish(&sites, next..next + 20);
        next += 20;
        positions(&services).0 > before
    });
    let (first, last) = positions(&services);
    (0..3).for_each(|server| services.stop_nats(server));
    (0..3).for_each(|server| services.start_nats(server));
    wait_for("all servers have all of the log", LONG, || are_current(&services));
    let now = positions(&services).0;
    assert!(now < first + (last - first) / 2, "from {first} to {last}, and from {now} on");
    sites.push(services.join(5));
    wait_for("another node that begins", LONG, || sites[5].is_ingress());
    wait_for("it knows of every session, too", LONG, || all_handled(&sites, next));
}

/// Positions of the first and the last message of the log.
fn positions(services: &Services) -> (u64, u64) {
    kit::runtime().block_on(async {
        let client = async_nats::connect(services.nats_urls()).await.expect("connected");
        let context = async_nats::jetstream::new(client);
        let stream = context.get_stream("overbank-test-log").await.expect("the log");
        let state = &stream.cached_info().state;
        (state.first_sequence, state.last_sequence)
    })
}

/// Whether every server has all of the log.
fn are_current(services: &Services) -> bool {
    kit::runtime().block_on(async {
        let client = async_nats::connect(services.nats_urls()).await.ok()?;
        let context = async_nats::jetstream::new(client);
        let stream = context.get_stream("overbank-test-log").await.ok()?;
        let cluster = stream.cached_info().cluster.as_ref()?;
        let current = cluster.replicas.iter().filter(|replica| replica.current);
        Some(cluster.leader.is_some() && current.count() == 2)
    }) == Some(true)
}

#[test]
fn passwords_and_certificates_are_shown_and_asked_for() {
    let mut services = Services::start_secured();
    let first = services.join(0);
    wait_for("a live node", LONG, || first.is_ingress());

    // etcd starts anew and knows none of its tokens: an idle node goes on, and sees what changes.
    services.stop_etcd(0);
    services.start_etcd(0);
    let sites = [first, services.join(1)];
    wait_for("a live node", LONG, || sites[1].is_ingress());
    establish(&sites, 0..20);
    wait_for("every packet is handled", LONG, || all_handled(&sites, 20));

    let refused = |change: fn(&mut Options)| {
        let mut options = services.options(NodeId(2));
        change(&mut options);
        services.try_join(options).err().expect("refused").to_string()
    };
    let error = refused(|options| options.etcd_access.user = Some(("west".into(), "b".into())));
    assert!(error.contains("etcdserver: authentication failed"), "{error}");
    let error = refused(|options| options.etcd_access.user = None);
    // The certificate's name is no user.
    assert!(error.contains("etcdserver: permission denied"), "{error}");
    let error = refused(|options| options.cluster = "east".to_owned());
    assert!(error.contains("etcdserver: permission denied"), "{error}");
    let error = refused(|options| options.nats_access.user = None);
    assert!(error.contains("authorization violation"), "{error}");
    let error = refused(|options| options.nats_access.ca = None);
    assert!(error.contains("TLS: InvalidCertificate: UnknownIssuer;"), "{error}");
    let error = refused(|options| options.etcd_access.ca = None);
    assert!(error.contains("TLS: InvalidCertificate: UnknownIssuer;"), "{error}");
    let error = refused(|options| options.etcd_access.identity = None);
    assert!(error.contains("TLS: received fatal alert: BadCertificate"), "{error}");
}
