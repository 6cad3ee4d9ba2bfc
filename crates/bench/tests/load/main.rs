//! `baton bench serve` over real sockets, against servers whose speed is known.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: allow-unwrap-in-tests covers test functions only")]

mod server;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use baton_bench::{BenchCommand, BenchError, run};
use clap::Parser;
use serde_json::Value;

use server::{Behaviour, Server};

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: BenchCommand,
}

/// Runs `bench serve` and gives back its result file.
async fn bench(name: &str, server: &Server, arguments: &str) -> Result<Value, BenchError> {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.json"));
    let url = server.url();
    let own = ["bench", "serve", "--url", &url, "--json", file.to_str().unwrap()];
    let cli = Cli::try_parse_from(own.into_iter().chain(arguments.split_whitespace())).unwrap();
    run(&cli.command).await?;
    Ok(serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap())
}

fn number(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} in {value}"))
}

fn close(found: f64, expected: f64, tolerance: f64) -> Result<(), String> {
    let is_close = (found / expected - 1.0).abs() <= tolerance;
    let far = || format!("{found}, not {expected} to within {:.0} %", tolerance * 100.0);
    is_close.then_some(()).ok_or_else(far)
}

const TRY_FOR: Duration = Duration::from_secs(120);

/// Speeds are those of the clock, which goes on while a busy machine does something else: one of many tries has to be right.
async fn in_one_of_many_tries(measured: impl AsyncFn() -> Result<(), String>) {
    let began = Instant::now();
    let mut wrong = Vec::new();
    while began.elapsed() < TRY_FOR {
        match measured().await {
            Ok(()) => return,
            Err(error) => wrong.push(error),
        }
    }
    panic!("in all tries: {wrong:?}");
}

const PACED: Behaviour = Behaviour::Paced { prefill: Duration::from_millis(200), per_token: Duration::from_millis(20) };

#[tokio::test(flavor = "multi_thread")]
async fn a_known_speed_is_measured() {
    in_one_of_many_tries(async || {
        let server = Server::start(PACED).await;
        let load = "--users 3 --requests 18 --warmup 3 --input 20 --output 11";
        let result = bench("known", &server, load).await.unwrap();
        assert_eq!(number(&result, "/summary/requests/measured"), 15.0);
        assert_eq!(number(&result, "/summary/requests/input_tokens"), 15.0 * 20.0);
        assert_eq!(result["server"]["prompts"].as_str().unwrap().split(' ').next(), Some("token"));
        close(number(&result, "/summary/ttft_ms/p50"), 200.0, 0.15)?;
        close(number(&result, "/summary/tpot_ms/p50"), 20.0, 0.15)?;
        close(number(&result, "/summary/itl_ms/mean"), 20.0, 0.15)?;
        close(number(&result, "/summary/e2e_ms/p50"), 400.0, 0.15)?;
        close(number(&result, "/summary/throughput/output_tokens_per_s"), 3.0 * 11.0 / 0.4, 0.15)
    })
    .await;
}

/// A server that can do 100 requests per second gets 150. A client that waits for it before sending the next would see no delay
/// at all; one that does not sees each request that ends at time t wait for t · (1 − 100/150).
#[tokio::test(flavor = "multi_thread")]
async fn overload_shows() {
    in_one_of_many_tries(async || {
        let server = Server::start(Behaviour::Serial { each: Duration::from_millis(10) }).await;
        let load = "--rate 150 --arrivals constant --duration 3s --warmup 20% --input 5 --output 1";
        let result = bench("overload", &server, load).await.unwrap();
        let records = result["records"].as_array().unwrap();
        let points: Vec<_> = records
            .iter()
            .filter(|record| record["measured"] == true)
            .map(|record| {
                let (intended, end) = (number(record, "/intended_us") / 1e6, number(record, "/end_us") / 1e6);
                (end, end - intended)
            })
            .collect();
        close(slope(&points), 1.0 - 100.0 / 150.0, 0.1)?;
        close(number(&result, "/summary/throughput/requests_per_s"), 100.0, 0.1)
    })
    .await;
}

fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    let (over, under) = points
        .iter()
        .fold((0.0, 0.0), |(over, under), point| (over + (point.0 - x) * (point.1 - y), under + (point.0 - x).powi(2)));
    over / under
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_loop_never_has_more_in_flight_than_users() {
    in_one_of_many_tries(async || {
        let server = Server::start(PACED).await;
        let result = bench("closed", &server, "--users 4 --requests 20 --input 5 --output 3").await.unwrap();
        assert!(server.most_at_once() <= 4, "{}", server.most_at_once());
        let wait = number(&result, "/summary/client_wait_ms/p50");
        (wait < 20.0).then_some(()).ok_or_else(|| format!("waits {wait} ms"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_seed_sends_the_same_bytes() {
    let mut sent = Vec::new();
    for seed in [7, 7, 8] {
        let server = Server::start(Behaviour::Serial { each: Duration::from_millis(1) }).await;
        let load =
            format!("--users 2 --requests 12 --input 5..50 --output 1..9 --shared-prefix 0.3 --turns 2 --seed {seed}");
        bench("seeds", &server, &load).await.unwrap();
        let mut bodies = server.bodies();
        bodies.sort();
        sent.push(bodies);
    }
    assert_eq!(sent[0].len(), 1 + 12, "a probe and the requests");
    assert_eq!(sent[0], sent[1]);
    assert_ne!(sent[0], sent[2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_is_replayed() {
    let trace = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("trace.jsonl");
    let lines = (0..10).map(|i| {
        let (input, ids) = (600 + i, format!("[0, {}]", i + 1));
        format!(
            "{{\"timestamp\": {}, \"input_length\": {input}, \"output_length\": 30, \"hash_ids\": {ids}}}\n",
            i * 1000
        )
    });
    std::fs::write(&trace, lines.collect::<String>()).unwrap();
    in_one_of_many_tries(async || {
        let server = Server::start(Behaviour::Serial { each: Duration::from_millis(1) }).await;
        let load = format!("--trace {} --speed 10 --length-scale 0.1 --warmup 0", trace.display());
        let result = bench("trace", &server, &load).await.unwrap();
        let prompts: Vec<Vec<u64>> = server
            .bodies()
            .iter()
            .map(|body| serde_json::from_str::<Value>(body).unwrap())
            .filter(|body| body["max_tokens"] == 3)
            .map(|body| serde_json::from_value(body["prompt"].clone()).unwrap())
            .collect();
        assert_eq!(prompts.len(), 10);
        assert!(prompts.windows(2).all(|pair| pair[0][..51] == pair[1][..51] && pair[0][51..] != pair[1][51..]));
        let last = number(&result["records"][9], "/sent_us") / 1e6;
        let intended = number(&result["records"][9], "/intended_us") / 1e6;
        assert!((intended - 0.9).abs() < 1e-6 && last >= intended, "sent at {last}, intended for {intended}");
        close(last, 0.9, 0.1)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_take_only_text_get_text() {
    for (behaviour, route, prompts) in
        [(Behaviour::TextOnly, "/v1/completions", "text"), (Behaviour::ChatOnly, "/v1/chat/completions", "messages")]
    {
        let server = Server::start(behaviour).await;
        let result = bench(prompts, &server, "--requests 4 --input 8 --output 2 --warmup 0").await.unwrap();
        assert_eq!(
            (result["server"]["route"].as_str(), result["server"]["prompts"].as_str()),
            (Some(route), Some(prompts))
        );
        assert_eq!(number(&result, "/summary/requests/completed"), 4.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_counted_by_kind() {
    let server = Server::start(Behaviour::FailsEveryOther).await;
    let result = bench("errors", &server, "--requests 12 --users 1 --input 5 --output 4 --warmup 0").await.unwrap();
    let errors: Vec<_> = result["summary"]["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| (error["kind"].clone(), error["count"].clone()))
        .collect();
    assert_eq!(errors, [("HTTP 429".into(), 4.into()), ("broke off".into(), 4.into())]);
    assert_eq!(number(&result, "/summary/requests/completed"), 4.0);
}

/// llama.cpp's server does so after every stream.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_up_between_answers_gets_the_request_again() {
    let server = Server::start(Behaviour::HangsUp).await;
    let result = bench("hangs-up", &server, "--users 2 --requests 12 --input 10 --output 3").await.unwrap();
    assert_eq!(result.pointer("/summary/errors"), Some(&Value::Array(Vec::new())));
}

#[tokio::test(flavor = "multi_thread")]
async fn goodput_is_where_the_server_can_just_keep_up() {
    in_one_of_many_tries(async || {
        let server = Server::start(Behaviour::Serial { each: Duration::from_millis(20) }).await;
        let load = "--find-goodput --slo-ttft 300ms --arrivals constant --rate 12 --duration 2s --input 5 --output 1";
        let result = bench("goodput", &server, load).await.unwrap();
        let found = number(&result, "/goodput_rate");
        // 50 requests per second are served; at 60, nine tenths are sent before 300 ms have come together.
        const MOST: f64 = 65.0;
        assert!(found < MOST, "more than the server can do: {found}");
        (45.0..MOST).contains(&found).then_some(()).ok_or_else(|| format!("{found} per second"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_there() {
    let server = Server::start(PACED).await;
    let gone = server.url();
    drop(server);
    let cli = Cli::try_parse_from(["bench", "serve", "--url", &gone]).unwrap();
    let error = run(&cli.command).await.unwrap_err();
    assert!(error.to_string().contains("no connection"), "{error}");
}
