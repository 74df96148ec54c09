//! The cost of datagrams: parsing requests, writing responses.
//!
//! `cargo bench -p onrush-lab --bench wire`; `-- --test` runs everything once.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use onrush_proto::connect::{self, ConnectResponse};
use onrush_proto::options::Options;
use onrush_proto::{
    Announce, AnnounceHead, Connect, ConnectionId, Event, InfoHash, PeerId, Request, Scrape,
    ScrapeCounts, TransactionId, announce, error, scrape,
};

criterion_group!(benches, parse, write);
criterion_main!(benches);

fn parse(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parse");
    let requests = [
        ("a connect", connect_request()),
        ("an announce", announce_request(&[])),
        // A path and query of usual length (BEP 41).
        ("an announce with options", announce_request(b"\x02\x09/announce\x00")),
        ("a scrape of one", scrape_request(1)),
        ("a scrape of ten", scrape_request(10)),
        ("a scrape of 74", scrape_request(74)),
    ];
    for (name, datagram) in requests {
        group.bench_function(name, |bencher| bencher.iter(|| read(black_box(&datagram))));
    }
    group.finish();
}

/// Parses a request and reads all fields that a tracker uses.
fn read(datagram: &[u8]) -> u32 {
    match Request::parse(datagram).expect("a well-formed request") {
        Request::Connect(connect) => connect.transaction_id.0,
        Request::Announce(announce) => {
            let announce = black_box(announce);
            announce.options.iter().map(|option| option.data.len() as u32).sum::<u32>()
                + announce.transaction_id.0
        }
        Request::Scrape(scrape) => {
            scrape.info_hashes().map(|hash| u32::from(hash.0[19])).sum::<u32>()
                + scrape.transaction_id.0
        }
    }
}

fn write(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("write");
    let transaction_id = TransactionId(7);
    group.bench_function("a connect response", |bencher| {
        let mut bytes = [0; connect::RESPONSE_LEN];
        let response = ConnectResponse { transaction_id, connection_id: ConnectionId(99) };
        bencher.iter(|| black_box(response).write(black_box(&mut bytes)));
    });
    group.bench_function("the head of an announce response", |bencher| {
        let mut bytes = [0; announce::HEAD_LEN];
        let head = AnnounceHead { transaction_id, interval: 1_800, leechers: 3, seeders: 4 };
        bencher.iter(|| black_box(head).write(black_box(&mut bytes)));
    });
    let counts = ScrapeCounts { seeders: 1, completed: 2, leechers: 3 };
    for (name, hashes) in
        [("a scrape response of ten", 10), ("a scrape response of 74", scrape::MAX_HASHES)]
    {
        group.bench_function(name, |bencher| {
            let mut bytes = [0; scrape::MAX_RESPONSE_LEN];
            bencher.iter(|| {
                let (head, rest) = bytes.split_first_chunk_mut().expect("a buffer for a request");
                scrape::write_head(transaction_id, head);
                for place in &mut rest.as_chunks_mut().0[..hashes] {
                    black_box(counts).write(place);
                }
                black_box(&bytes);
            });
        });
    }
    group.bench_function("an error", |bencher| {
        let mut bytes = [0; 64];
        bencher.iter(|| error::write(transaction_id, black_box("busy"), black_box(&mut bytes)));
    });
    group.finish();
}

fn connect_request() -> Vec<u8> {
    let mut bytes = [0; connect::REQUEST_LEN];
    Connect { transaction_id: TransactionId(7) }.write(&mut bytes);
    bytes.to_vec()
}

fn announce_request(options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; announce::REQUEST_LEN + options.len()];
    let announce = Announce {
        connection_id: ConnectionId(99),
        transaction_id: TransactionId(7),
        info_hash: InfoHash([1; 20]),
        peer_id: PeerId([2; 20]),
        downloaded: 0,
        left: 1,
        uploaded: 0,
        event: Event::Started,
        ip: 0,
        key: 5,
        num_want: 50,
        port: 6_881,
        options: Options(options),
    };
    announce.write(&mut bytes);
    bytes
}

fn scrape_request(hashes: u8) -> Vec<u8> {
    let hashes: Vec<_> = (0..hashes).map(|number| InfoHash([number; 20])).collect();
    let mut bytes = vec![0; scrape::MAX_REQUEST_LEN];
    let len = Scrape::write(ConnectionId(99), TransactionId(7), &hashes, &mut bytes);
    bytes.truncate(len);
    bytes
}
