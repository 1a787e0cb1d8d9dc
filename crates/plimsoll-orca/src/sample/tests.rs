//! Tests of the sampler on directories with made-up `/proc` and cgroup files.

use std::fs;

use tempfile::TempDir;

use super::*;

const HOST: &[(&str, &str)] = &[
    (
        "proc/stat",
        "cpu  100 0 50 800 50 0 0 0 7 7\ncpu0 50 0 25 400 25 0 0 0 0 0\ncpu1 1\ncpu2 1\ncpu3 1\n\
         intr 5\n",
    ),
    (
        "proc/meminfo",
        "MemTotal:        1000 kB\nMemFree:          1 kB\nMemAvailable:     600 kB\n",
    ),
];

fn system(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    write(&root, HOST);
    write(&root, files);
    root
}

fn write(root: &TempDir, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn near(left: Option<f64>, right: f64) {
    let left = left.expect("a value was sampled");
    assert!((left - right).abs() < 1e-9, "{left} is not {right}");
}

#[test]
fn without_cgroups_the_machine_is_measured() {
    let root = system(&[]);
    let mut sampler = Sampler::new(root.path());
    let cpu = sampler.cpu(at(0)).unwrap();
    assert_eq!((cpu.busy, cpu.capacity), (150.0, 1_000.0));
    near(sampler.memory(at(2)), 0.4);
}

#[test]
fn without_files_nothing_is_measured() {
    let root = tempfile::tempdir().unwrap();
    let mut sampler = Sampler::new(root.path());
    assert_eq!(sampler.cpu(at(0)), None);
    assert_eq!(sampler.memory(at(0)), None);
    write(&root, &[("proc/stat", "cpu  x"), ("proc/meminfo", "")]);
    assert_eq!((sampler.cpu(at(1)), sampler.memory(at(1))), (None, None));
}

const V2: &[(&str, &str)] = &[
    ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
    ("proc/self/cgroup", "0::/pod/app\n"),
    ("sys/fs/cgroup/pod/app/cpu.max", "max 100000\n"),
    ("sys/fs/cgroup/pod/app/memory.max", "max\n"),
    ("sys/fs/cgroup/pod/app/cpu.stat", "usage_usec 1\n"),
    ("sys/fs/cgroup/pod/cpu.max", "150000 100000\n"),
    (
        "sys/fs/cgroup/pod/cpu.stat",
        "usage_usec 3000000\nuser_usec 9\n",
    ),
    ("sys/fs/cgroup/pod/memory.max", "102400\n"),
    ("sys/fs/cgroup/pod/memory.current", "61440\n"),
    (
        "sys/fs/cgroup/pod/memory.stat",
        "anon 1\ninactive_file 10240\n",
    ),
];

#[test]
fn cgroup_v2_limits_are_inherited_from_parent_groups() {
    let root = system(V2);
    let mut sampler = Sampler::new(root.path());
    let first = sampler.cpu(at(10)).unwrap();
    assert_eq!((first.busy, first.capacity), (3.0, 15.0));
    write(
        &root,
        &[("sys/fs/cgroup/pod/cpu.stat", "usage_usec 3750000\n")],
    );
    let second = sampler.cpu(at(11)).unwrap();
    assert_eq!(second.source, first.source);
    assert_eq!((second.busy, second.capacity), (3.75, 16.5));
    near(sampler.memory(at(2)), 0.5);
}

#[test]
fn memory_can_be_sampled_before_the_cpu() {
    let root = system(V2);
    near(Sampler::new(root.path()).memory(at(0)), 0.5);
}

#[test]
fn the_lowest_limit_applies() {
    let root = system(V2);
    let own = [
        ("sys/fs/cgroup/pod/app/cpu.max", "50000 100000\n"),
        ("sys/fs/cgroup/pod/app/memory.max", "51200\n"),
        ("sys/fs/cgroup/pod/app/memory.current", "12800\n"),
    ];
    write(&root, &own);
    let mut sampler = Sampler::new(root.path());
    let cpu = sampler.cpu(at(2)).unwrap();
    assert_eq!((cpu.busy, cpu.capacity), (1e-6, 1.0));
    near(sampler.memory(at(2)), 0.25);
}

#[test]
fn a_limit_above_the_machine_is_ignored() {
    let root = system(V2);
    let wide = [
        ("sys/fs/cgroup/pod/cpu.max", "400000 100000\n"),
        ("sys/fs/cgroup/pod/memory.max", "1024000\n"),
    ];
    write(&root, &wide);
    let mut sampler = Sampler::new(root.path());
    assert_eq!(sampler.cpu(at(0)).unwrap().capacity, 1_000.0);
    near(sampler.memory(at(2)), 0.4);
}

#[test]
fn changed_limits_take_effect() {
    let root = system(V2);
    let mut sampler = Sampler::new(root.path());
    sampler.cpu(at(0)).unwrap();
    write(&root, &[("sys/fs/cgroup/pod/cpu.max", "300000 100000\n")]);
    assert_eq!(sampler.cpu(at(4)).unwrap().capacity, 6.0, "still 1.5");
    let grown = sampler.cpu(at(6)).unwrap();
    assert_eq!((grown.source, grown.capacity), (0, 12.0), "3 from now on");
    write(&root, &[("sys/fs/cgroup/pod/cpu.max", "max 100000\n")]);
    let unlimited = sampler.cpu(at(12)).unwrap();
    assert_eq!((unlimited.source, unlimited.capacity), (1, 1_000.0));
}

const V1: &[(&str, &str)] = &[
    (
        "proc/self/cgroup",
        "4:memory:/box/a\n3:cpuset:/\n2:cpu,cpuacct:/box\n0::/\n",
    ),
    ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
    ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
    ("sys/fs/cgroup/cpu,cpuacct/cpuacct.usage", "1\n"),
    ("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "50000\n"),
    (
        "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us",
        "100000\n",
    ),
    (
        "sys/fs/cgroup/cpu,cpuacct/box/cpuacct.usage",
        "2500000000\n",
    ),
    (
        "sys/fs/cgroup/memory/box/a/memory.limit_in_bytes",
        "9223372036854771712\n",
    ),
    ("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "102400\n"),
    ("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "51200\n"),
    (
        "sys/fs/cgroup/memory/box/memory.stat",
        "inactive_file 1\ntotal_inactive_file 25600\n",
    ),
];

#[test]
fn cgroup_v1_has_a_hierarchy_per_controller() {
    let root = system(V1);
    let mut sampler = Sampler::new(root.path());
    let cpu = sampler.cpu(at(10)).unwrap();
    assert_eq!((cpu.busy, cpu.capacity), (2.5, 5.0));
    near(sampler.memory(at(2)), 0.25);
}

#[test]
fn cgroup_v1_may_mount_cpuacct_separately() {
    let root = system(&[
        ("proc/self/cgroup", "2:cpu:/box\n1:cpuacct:/box\n"),
        ("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "200000\n"),
        ("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/cpuacct/box/cpuacct.usage", "1000000000\n"),
    ]);
    let cpu = Sampler::new(root.path()).cpu(at(3)).unwrap();
    assert_eq!((cpu.busy, cpu.capacity), (1.0, 6.0));
}

#[test]
fn an_unmounted_group_falls_back_to_the_mount() {
    for own in ["0::/../elsewhere\n", "0::/not/here\n", ""] {
        let root = system(&[
            ("sys/fs/cgroup/cgroup.controllers", "cpu\n"),
            ("proc/self/cgroup", own),
            ("sys/fs/cgroup/cpu.max", "100000 100000\n"),
            ("sys/fs/cgroup/cpu.stat", "usage_usec 500000\n"),
        ]);
        let cpu = Sampler::new(root.path()).cpu(at(2)).unwrap();
        assert_eq!((cpu.busy, cpu.capacity), (0.5, 2.0), "{own:?}");
    }
}

#[test]
fn invalid_limits_are_ignored() {
    for max in ["", "max", "x 100000", "0 100000", "100000 0", "-5 1"] {
        let root = system(&[
            ("sys/fs/cgroup/cgroup.controllers", "cpu\n"),
            ("sys/fs/cgroup/cpu.max", max),
            ("sys/fs/cgroup/memory.max", max),
        ]);
        let mut sampler = Sampler::new(root.path());
        assert_eq!(sampler.cpu(at(1)).unwrap().capacity, 1_000.0, "{max:?}");
        near(sampler.memory(at(2)), 0.4);
    }
}
