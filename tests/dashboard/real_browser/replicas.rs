//! Replicas: the page and `plimsoll top` show which replica answers, the others with their nodes,
//! and the state of the store, as the admin API does.

use std::process::Command;

use plimsoll_testing::plimsoll;
use serde_json::{Value, json};

use crate::support::control::Control;
use crate::support::etcd;
use crate::support::page::{DESKTOP, PHONE, Page};
use crate::support::wait_for;

fn row(page: &mut Page, replica: &str, field: &str) -> String {
    page.text(&format!(
        "document.querySelector(\"#replicas tr[data-key='{replica}'] [data-field={field}]\")\
         .textContent"
    ))
}

fn replicas(control: &Control) -> Vec<Value> {
    let page = control.page("replicas");
    page["replicas"].as_array().unwrap().clone()
}

#[test]
fn replicas_and_their_store_are_shown() {
    let (store, mut etcd) = etcd::start();
    let first = Control::start_replica("replicas", store, "r0").with_proxies();
    let second = Control::start_replica("replicas", store, "r1");
    wait_for("both replicas know how many nodes each has", || {
        let listed = replicas(&second);
        let nodes: Vec<_> = listed.iter().map(|one| one["nodes"].clone()).collect();
        (nodes == [4, 0].map(|nodes| json!(nodes))).then_some(())
    });

    let mut page = Page::open("replicas-browser", &second.address(), DESKTOP);
    page.wait("document.querySelectorAll('#replicas tbody tr').length === 2");
    for (replica, name) in replicas(&second).iter().zip(["r0", "r1 (this page)"]) {
        let key = replica["replica"].as_str().unwrap();
        assert_eq!(row(&mut page, key, "name"), name);
        assert_eq!(row(&mut page, key, "nodes"), replica["nodes"].to_string());
        let listen = replica["listen"].as_str().unwrap();
        assert_eq!(row(&mut page, key, "listen"), listen);
        assert_eq!(row(&mut page, key, "configuration"), "same");
        assert!(row(&mut page, key, "heard").contains(" ago"));
    }
    let expected = "this page is r1 · store connected · 4 nodes of all replicas";
    page.wait_for_text("#replicas-store", expected);
    page.assert_tidy();
    page.screenshot("control-replicas");
    page.resize(PHONE);
    page.assert_tidy();
    page.resize(DESKTOP);
    top_agrees(&second);

    etcd.kill();
    page.wait("document.querySelector('#replicas-store').textContent.includes('not connected')");
    page.wait("document.querySelector('#notices').textContent.includes('cannot be reached')");
    assert_eq!(row(&mut page, "r0", "nodes"), "4", "what was known stays");
    page.screenshot("control-replicas-without-store");
    page.close();
    drop(first);
}

#[test]
fn without_a_store_there_is_no_table_of_replicas() {
    let control = Control::start("no-replicas");
    let mut page = Page::open("no-replicas-browser", &control.address(), DESKTOP);
    assert_eq!(
        page.eval("document.querySelector('#replicas-card').hidden"),
        true
    );
    let link = "document.querySelector(\".sections a[href='#replicas-card']\").hidden";
    assert_eq!(page.eval(link), true);
    page.close();
}

fn top_agrees(control: &Control) {
    let mut command = Command::new(plimsoll());
    command
        .args(["top", "--once"])
        .arg(control.admin.to_string());
    let output = command.output().unwrap();
    let page = String::from_utf8(output.stdout).unwrap();
    for part in [
        "Replicas\n  store connected, 4 nodes of all replicas",
        "r0: 4 nodes, heard ",
        "r1 (this one): 0 nodes, heard ",
    ] {
        assert!(page.contains(part), "{part:?} is missing:\n{page}");
    }
}
