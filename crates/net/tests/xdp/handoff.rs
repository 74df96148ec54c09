//! A queue passes from one owner to the next, as in an upgrade.

use std::mem;
use std::thread;
use std::time::Duration;

use caps::CapSet;
use onrush_net::xdp::{Mode, Program, Queue, QueueOptions};
use onrush_net::{Reply, Socket};

use crate::link::{Link, options, until, waiting};
use crate::queues::{Pair, RING, backend};

/// Does something on a thread without capabilities.
fn without_capabilities<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let work = || {
        caps::clear(None, CapSet::Effective).unwrap();
        caps::clear(None, CapSet::Permitted).unwrap();
        work()
    };
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// The first owner answers what it has received. The next one, without capabilities, answers the
/// rest, and what arrives before it begins.
#[test]
fn the_next_owner_answers_all_that_is_queued_and_lacks_no_frame() {
    let mut pair = Pair::new("127.0.0.1");
    (0..30).for_each(|_| pair.ask(b"request"));
    until(|| waiting(&mut pair.server) == 30);
    let batch = pair.server.receive(7).unwrap();
    let batch: Vec<_> = batch.iter().map(|(_, slot)| slot.reply_to).collect();
    let mut program = Program::redirect(&[vec![pair.there.port()]]).unwrap();
    let descriptors = mem::take(&mut pair.queue.1);
    let next = without_capabilities(|| {
        let options = options(0, RING, 32);
        let queue = Queue::adopt(options.clone(), descriptors).unwrap();
        backend(&pair.socket, vec![(options, Some(queue))], &program)
    });
    pair.server.send(batch.iter().map(|to| Reply { bytes: b"first", to }));
    pair.server.release();
    (0..20).for_each(|_| pair.ask(b"request"));
    let (interface, link) = pair.program.links().next().unwrap();
    let link = link.try_clone_to_owned().unwrap();
    program.redirect_queues(interface, 0, 1).unwrap();
    program.replace(interface, link).unwrap();
    pair.server = next;
    pair.program = program;
    without_capabilities(|| pair.answer(23 + 20, b"next"));
    assert_eq!(pair.replies(50), [5; 7].into_iter().chain([4; 43]).collect::<Vec<usize>>());
    let counts = pair.use_all_frames();
    assert_eq!((counts.received, counts.sent, counts.full), (43 + 1280, 43 + 1280, 0));
}

/// Once the next owner has begun, the first one empties a queue that it has not handed over. The
/// next one has its requests at the UDP socket, until it gets the queue.
#[test]
fn a_queue_that_is_not_handed_over_is_emptied_and_then_the_next_owners() {
    let mut pair = Pair::new("127.0.0.1");
    let mut next = backend(&pair.socket, vec![(options(0, 2 * RING, 32), None)], &pair.program);
    (0..5).for_each(|_| pair.ask(b"request"));
    until(|| waiting(&mut pair.server) == 5);
    pair.server.release();
    pair.server.retain_addresses(&|_| false);
    pair.server.leave_queues(&[]);
    pair.ask(b"request");
    pair.answer(5, b"first");
    assert_eq!(pair.replies(5), [5; 5]);
    mem::swap(&mut pair.server, &mut next);
    pair.answer(1, b"next");
    assert_eq!((pair.replies(1), pair.counts().received), (vec![4], 0));
    drop((next, mem::take(&mut pair.queue)));
    until(|| {
        pair.server.dropped();
        pair.server.wait(Duration::from_millis(1)).unwrap();
        pair.server.queues().next().unwrap().is_open
    });
    pair.ask(b"request");
    pair.answer(1, b"next");
    assert_eq!((pair.replies(1), pair.counts().received), (vec![4], 1));
}

#[test]
fn a_queue_of_another_ring_or_mode_is_not_adopted() {
    let link = Link::new(Mode::Native, 1);
    let queue = link.open(RING, 32).remove(0).1.unwrap();
    let adopt = |options| Queue::adopt(options, queue.share().unwrap());
    let options = options(0, RING, 32);
    adopt(QueueOptions { ring: 2 * RING, ..options.clone() }).unwrap_err();
    adopt(QueueOptions { zero_copy: true, ..options.clone() }).unwrap_err();
    assert_eq!(adopt(options).unwrap().id(), queue.id());
}
