// Locks of rslock under remote control: ../README.md lists the commands. One command runs at a time.
use redis::Commands;
use rslock::{Lock, LockError, LockManager};
use std::collections::HashMap;
use std::error::Error;
use std::io::{self, BufRead, Write};
use std::time::Duration;

type Answer = Result<&'static str, Box<dyn Error>>;

// 200 ms each: a minute.
const TAKE_TRIES: u32 = 300;

struct Handle {
    name: String,
    lease: Duration,
    once: LockManager,
    often: LockManager,
    lock: Option<Lock>,
}

impl Handle {
    fn new(name: &str, lease: Duration, ports: &[&str]) -> Handle {
        let uris = || ports.iter().map(|port| format!("redis://127.0.0.1:{port}")).collect();
        let mut once = LockManager::new::<String>(uris());
        let mut often = LockManager::new::<String>(uris());
        once.set_retry(1, Duration::from_millis(1));
        often.set_retry(TAKE_TRIES, Duration::from_millis(200));
        Handle { name: name.to_string(), lease, once, often, lock: None }
    }

    fn taken(&mut self, result: Result<Lock, LockError>, refusal: &'static str) -> Answer {
        match result {
            Ok(lock) => {
                self.lock = Some(lock);
                Ok("ok")
            }
            Err(LockError::Unavailable) => Ok(refusal),
            Err(error) => Err(error.into()),
        }
    }

    async fn attempt(&mut self) -> Answer {
        let result = self.once.lock(self.name.as_bytes(), self.lease).await;
        self.taken(result, "busy")
    }

    async fn take(&mut self) -> Answer {
        let result = self.often.lock(self.name.as_bytes(), self.lease).await;
        self.taken(result, "busy")
    }

    async fn extend(&mut self) -> Answer {
        let lock = self.lock.as_ref().ok_or("it never had it")?;
        let result = self.once.extend(lock, self.lease).await;
        self.taken(result, "lost")
    }

    // It does not say whether the lock was there.
    async fn release(&mut self) -> Answer {
        let lock = self.lock.as_ref().ok_or("it never had it")?;
        self.once.unlock(lock).await;
        Ok("silent")
    }

    async fn locked(&mut self) -> Answer {
        let lock = self.lock.as_ref().ok_or("it never had it")?;
        match self.once.is_freed(lock).await {
            Ok(freed) => Ok(if freed { "no" } else { "yes" }),
            Err(LockError::RedisKeyMismatch | LockError::RedisKeyNotFound) => Ok("no"),
            Err(error) => Err(error.into()),
        }
    }

    // Steps in a book that only an exclusive owner may take: what was read is what is written over.
    async fn work(&mut self, rounds: u32, port: &str) -> Answer {
        let mut book = redis::Client::open(format!("redis://127.0.0.1:{port}"))?.get_connection()?;
        for _ in 0..rounds {
            while self.take().await? != "ok" {}
            let page: Option<i64> = book.get("book")?;
            tokio::time::sleep(Duration::from_millis(2)).await;
            let _: () = book.set("book", page.unwrap_or(0) + 1)?;
            self.release().await?;
        }
        Ok("ok")
    }
}

async fn obey(handles: &mut HashMap<String, Handle>, verb: &str, words: &[&str]) -> Answer {
    match (verb, words) {
        ("ping", _) => return Ok("ok"),
        ("open", [handle, "rslock", name, lease_ms, ports @ ..]) => {
            let lease = Duration::from_millis(lease_ms.parse()?);
            handles.insert(handle.to_string(), Handle::new(name, lease, ports));
            return Ok("ok");
        }
        _ => {}
    }
    let handle = words.first().and_then(|word| handles.get_mut(*word)).ok_or("no such handle")?;
    match (verb, words) {
        ("try", _) => handle.attempt().await,
        ("take", _) => handle.take().await,
        ("extend", _) => handle.extend().await,
        ("release", _) => handle.release().await,
        ("locked", _) => handle.locked().await,
        ("work", [_, rounds, port]) => handle.work(rounds.parse()?, port).await,
        _ => Err("no such command".into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut handles = HashMap::new();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match runtime.block_on(obey(&mut handles, words[1], &words[2..])) {
            Ok(text) => text.to_string(),
            Err(error) => format!("err {error}").replace('\n', " "),
        };
        println!("{} {answer}", words[0]);
        io::stdout().flush()?;
    }
    Ok(())
}
