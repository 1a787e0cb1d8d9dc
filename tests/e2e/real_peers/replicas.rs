//! Replicas of the control plane under faults: no request fails, the fractions in every data plane
//! stay near the truth, and no replica counts a node twice or not at all.

use crate::support::replicated::Replicated;

#[test]
fn replicas_and_etcd_may_die_and_nobody_notices() {
    let mut testbed = Replicated::start();

    for replica in 0..3 {
        let fault = testbed.fault();
        testbed.replicas[replica].kill();
        testbed.wait_until_left(replica, (replica + 1) % 3);
        testbed.settle(&fault, &format!("after replica {replica} died"));
        testbed.restart(replica);
    }
    let fault = testbed.fault();
    testbed.settle(&fault, "after all replicas have died, one by one");

    let leader = testbed.etcd.leader().expect("etcd has a leader");
    let fault = testbed.fault();
    testbed.etcd.kill(leader);
    testbed.run_for(4);
    testbed.settle(&fault, "after the leader of etcd died");
    testbed.wait_for_store(true);

    // Without etcd, replicas keep the last report of each node: not one from a moment in which the
    // machine was too busy for even traffic.
    testbed.wait_for_even_reports();
    let second = (leader + 1) % 3;
    testbed.etcd.kill(second);
    testbed.wait_for_store(false);
    testbed.run_for(6);
    testbed.hold("while the majority of etcd is dead");
    let fault = testbed.fault();
    testbed.etcd.restart(leader);
    testbed.etcd.restart(second);
    testbed.wait_for_store(true);
    testbed.settle(&fault, "after etcd came back");

    let fault = testbed.fault();
    for replica in &mut testbed.replicas {
        replica.kill();
    }
    for replica in 0..3 {
        testbed.restart(replica);
    }
    testbed.run_for(8);
    testbed.settle(&fault, "after all replicas restarted");
    // Three replicas, most of the time, while a phase lasts several seconds.
    assert!(testbed.sums_compared() > 100);
}

#[test]
fn an_etcd_that_does_not_answer_harms_nobody() {
    let mut testbed = Replicated::start();

    let leader = testbed.etcd.leader().expect("etcd has a leader");
    let fault = testbed.fault();
    testbed.etcd.freeze(leader);
    testbed.run_for(4);
    testbed.wait_for_store(true);
    testbed.settle(&fault, "while the leader of etcd hangs");
    testbed.etcd.thaw(leader);

    testbed.wait_for_even_reports();
    for member in 0..3 {
        testbed.etcd.freeze(member);
    }
    testbed.wait_for_store(false);
    testbed.run_for(6);
    testbed.hold("while etcd hangs");
    let fault = testbed.fault();
    for member in 0..3 {
        testbed.etcd.thaw(member);
    }
    testbed.wait_for_store(true);
    testbed.settle(&fault, "after etcd answers again");

    // Everything restarts at once, and replicas before their store.
    testbed.wait_for_even_reports();
    let fault = testbed.fault();
    for member in 0..3 {
        testbed.etcd.kill(member);
    }
    for replica in &mut testbed.replicas {
        replica.kill();
    }
    for replica in 0..3 {
        testbed.restart(replica);
    }
    for member in 0..3 {
        testbed.etcd.restart(member);
    }
    testbed.wait_for_store(true);
    testbed.settle(&fault, "after replicas and etcd restarted");
    assert!(testbed.sums_compared() > 50);
}
