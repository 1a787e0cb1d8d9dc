//! Candidates of the comparison: one closure per row, which makes a number of picks.
//!
//! Our picks include zone-aware routing; the other balancers have no zones. They pick from 10 and
//! from 10,000 backends. Pingora returns a copy of the backend with its address, so ours reads the
//! address when compared with Pingora. Tower has no pick without a request: its row is one
//! `poll_ready`, one call and one response of a no-op service, so ours also counts a request when
//! compared with tower.

use std::convert::Infallible;
use std::future::{Future as _, Ready, ready};
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use pingora_load_balancing::LoadBalancer;
use pingora_load_balancing::selection::{BackendSelection, Random, RoundRobin};
use plimsoll_core::host::RequestOutcome;
use plimsoll_core::model::endpoint_policy::{EndpointPolicy, LeastRequest, LeastRequestParts};
use plimsoll_core::picker::PickArgs;
use tower::balance::p2c::Balance;
use tower::discover::ServiceList;
use tower::load::{CompleteOnResponse, PendingRequests};
use tower::{BoxError, Service};

use crate::common::{Cluster, Setup, Shape, State, address};

/// Maximum number of backends that Pingora tries, as in its documentation.
const PINGORA_MAX_ITERATIONS: usize = 256;

/// Row of a table.
pub(crate) struct Contender {
    pub(crate) name: String,
    /// Makes the given number of picks.
    pub(crate) run: Box<dyn FnMut(u32)>,
}

impl Contender {
    fn new(name: String, mut pick: impl FnMut() + 'static) -> Self {
        let run = move |picks| (0..picks).for_each(|_| pick());
        Self {
            name,
            run: Box::new(run),
        }
    }
}

/// Endpoint policies that are compared.
#[derive(Clone, Copy)]
pub(crate) enum Policy {
    LeastRequest,
    Random,
    RoundRobin,
}

impl Policy {
    const fn name(self) -> &'static str {
        match self {
            Self::LeastRequest => "least request",
            Self::Random => "random",
            Self::RoundRobin => "round robin",
        }
    }

    fn endpoint_policy(self) -> EndpointPolicy {
        match self {
            Self::LeastRequest => {
                let parts = LeastRequestParts::default();
                EndpointPolicy::LeastRequest(LeastRequest::try_new(parts).expect("valid settings"))
            }
            Self::Random => EndpointPolicy::Random,
            Self::RoundRobin => EndpointPolicy::default(),
        }
    }
}

/// Plimsoll: a zone-aware pick.
pub(crate) fn pick(policy: Policy, state: State, shape: Shape) -> Contender {
    let mut picker = cluster(policy, state, shape).picker();
    Contender::new(name("pick", policy, state, shape), move || {
        black_box(picker.pick(PickArgs::default()).host());
    })
}

/// Plimsoll: a zone-aware pick, reading the address of the host.
pub(crate) fn pick_address(policy: Policy, state: State, shape: Shape) -> Contender {
    let mut picker = cluster(policy, state, shape).picker();
    Contender::new(name("pick and read", policy, state, shape), move || {
        let picked = picker.pick(PickArgs::default());
        black_box(picked.host().map(|host| host.address()));
    })
}

/// Plimsoll: a zone-aware least-request pick, counting the request as started and finished.
pub(crate) fn request(state: State, shape: Shape) -> Contender {
    let policy = Policy::LeastRequest;
    let mut picker = cluster(policy, state, shape).picker();
    Contender::new(name("request", policy, state, shape), move || {
        let picked = picker.pick(PickArgs::default());
        if let Some(host) = black_box(picked.host()) {
            host.begin_request().finish(RequestOutcome::Success);
        }
    })
}

/// Pingora: selection by round robin.
pub(crate) fn pingora_round_robin(shape: Shape) -> Contender {
    pingora::<RoundRobin>("round robin", shape)
}

/// Pingora: selection at random.
pub(crate) fn pingora_random(shape: Shape) -> Contender {
    pingora::<Random>("random", shape)
}

fn pingora<S>(name: &str, shape: Shape) -> Contender
where
    S: BackendSelection + Send + Sync + 'static,
    S::Iter: pingora_load_balancing::selection::BackendIter,
{
    let balancer =
        LoadBalancer::<S>::try_from_iter((0..shape.hosts).map(address)).expect("valid addresses");
    Contender::new(
        format!("pingora select, {name}, {} backends", shape.hosts),
        move || {
            black_box(balancer.select(b"", PINGORA_MAX_ITERATIONS));
        },
    )
}

/// Tower: power of two choices by pending requests.
pub(crate) fn tower_p2c(shape: Shape) -> Contender {
    let services =
        (0..shape.hosts).map(|_| PendingRequests::new(Idle, CompleteOnResponse::default()));
    let services: Vec<_> = services.collect();
    let mut balance = Balance::new(ServiceList::new::<()>(services));
    Contender::new(
        format!("tower p2c request, {} services", shape.hosts),
        move || {
            black_box(request_of(&mut balance));
        },
    )
}

/// Polls the balancer, calls it and takes the response; nothing is ever pending here.
fn request_of(balance: &mut impl Service<(), Response = (), Error = BoxError>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(Ok(())) = balance.poll_ready(&mut context) else {
        return false;
    };
    matches!(
        pin!(balance.call(())).poll(&mut context),
        Poll::Ready(Ok(()))
    )
}

/// Service that is always ready and responds immediately.
struct Idle;

impl Service<()> for Idle {
    type Response = ();
    type Error = Infallible;
    type Future = Ready<Result<(), Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        ready(Ok(()))
    }
}

fn cluster(policy: Policy, state: State, shape: Shape) -> Cluster {
    Cluster::new(Setup::new(shape, state, policy.endpoint_policy()))
}

fn name(what: &str, policy: Policy, state: State, shape: Shape) -> String {
    format!(
        "{what}, {}, {}, {}",
        policy.name(),
        state.name(),
        shape.name()
    )
}
