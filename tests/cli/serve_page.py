"""Looks at the page of `holdfast serve` as people do. Started by serve_page.sh, which has a server of locks for it."""
import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import time

from browser import LIMIT, Browser

DIR, SOCKET = os.environ['dir'], os.environ['socket']
TOKEN = open(DIR + '/token', encoding='ascii').read().strip()
PICTURES = os.environ.get('HF_PICTURES')
GONE = '5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:17'
PR_SET_PDEATHSIG = 1


def die_with_us():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A command that ends with this test at the latest."""

    def __init__(self, *command, **options):
        self.popen = subprocess.Popen(command, preexec_fn=die_with_us, stdin=subprocess.PIPE, **options)
        self.pid = self.popen.pid

    def end(self, how=signal.SIGTERM):
        if self.popen.poll() is not None:
            return
        self.popen.send_signal(how)
        self.popen.wait(LIMIT)


@contextlib.contextmanager
def running(*commands, **options):
    """Each is the arguments of holdfast."""
    all_of_them = [Process('hf', *command, stderr=subprocess.DEVNULL, **options) for command in commands]
    try:
        yield all_of_them
    finally:
        for process in all_of_them:
            process.end()


def redis(*words, text=None):
    return subprocess.run(['redis-cli', '-s', SOCKET, *words], input=text, check=True, capture_output=True,
                          text=True).stdout.strip()


def wait_for(condition, what):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)  # what is waited for is on disk or at the server


class Serve:
    def __init__(self, listen='127.0.0.1:0', tool=('hf',), path=DIR + '/page.err'):
        with open(path, 'w', encoding='utf-8') as messages:
            self.process = Process(*tool, 'serve', '--listen', listen, '--token-file', DIR + '/token', '--allow-break',
                                   stderr=messages)
        wait_for(lambda: re.search('the page is at', open(path, encoding='utf-8').read()), 'it does not listen')
        self.url = re.search(r'the page is at (\S+)', open(path, encoding='utf-8').read()).group(1)


def row(name):
    return f"[...document.querySelectorAll('#locks tr')].find(tr => tr.querySelector('a').textContent === {name!r})"


def cells(name):
    return f"{row(name)} && [...{row(name)}.cells].map(cell => cell.textContent)"


def holder_is(name, pid_or_child):
    return f"({cells(name)} || [])[2]?.includes(' {pid_or_child} ')"


def holder_of(process):
    """`run` is two processes; the one that holds is a child of the first."""
    children = f'/proc/{process.pid}/task/{process.pid}/children'
    wait_for(lambda: open(children, encoding='ascii').read().split(), 'there is no holder')
    return open(children, encoding='ascii').read().split()[0]


# ---- What is looked at --------------------------------------------------------------------------------


def test_the_table_follows_a_hand_over(page, serve):
    # a fair lock, which is not free in between: a survey just then would show a release, and nobody before the next
    page.until("document.getElementById('live').textContent === 'live'")
    page.until("!document.getElementById('locks-empty').hidden", 'an empty list says so')
    with running(('run', '--fair', 'relay', '--', 'sleep', '1000')) as (first,):
        page.until(f"{cells('relay')}", 'the lock appears')
        before = page.until(f"({cells('relay')} || [])[2]?.match(/ (\\d+) sleep/)?.[1]", 'its holder is named')
        with running(('run', '--fair', 'relay', '--', 'sleep', '1000')):
            page.until(f"({cells('relay')} || [])[5]?.startsWith('1')", 'somebody waits')
            page.js("location.hash = '#/lock/relay'")
            page.until("document.querySelectorAll('#lock-waiters li:not(.none)').length === 1", 'the line')
            first.end()
            page.until("document.querySelector('#lock-events').textContent.includes('handed over from')", 'the hand-over')
            page.js("location.hash = '#/'")
            page.until(f"({cells('relay')} || [])[2]?.match(/ (\\d+) sleep/)?.[1] > 0 && "
                       f"{cells('relay')}[2].match(/ (\\d+) sleep/)[1] !== '{before}'", 'another holder')
            page.until("document.querySelectorAll('#spark .spark-bar').length > 0", 'the picture of the last minute')
    page.until(f"!({row('relay')})", 'it goes away')


def test_a_deadlock_turns_red_and_names_both(page, serve):
    script = 'while [ "$(redis-cli -s "$socket" exists left right)" != 2 ]; do tick; done; exec hf run '
    with running(('run', 'left', '--', 'sh', '-c', script + 'right true'),
                 ('run', 'right', '--', 'sh', '-c', script + 'left true')) as (left, right):
        text = page.until("document.querySelector('#alerts .deadlock')?.textContent", 'the deadlock')
        for name in ('left', 'right'):
            assert f'waits for {name}' in text, text
        waiters = re.findall(r'(\d+) true waits', text)
        holders = re.findall(r'held by \S+ (\d+) sh', text)
        assert len(waiters) == 2 and len(holders) == 2 and len(set(waiters + holders)) == 4, text
        colour = page.js("getComputedStyle(document.querySelector('.deadlock')).color")
        red, green, blue = map(int, re.findall(r'\d+', colour)[:3])
        assert red > 2 * green and red > 2 * blue, colour
        page.until(f"({cells('left')} || [])[1] === 'deadlock'")
        page.until("document.getElementById('n-deadlocks').textContent === '1'")
        page.until("document.title.startsWith('⛔')")
        page.js("location.hash = '#/waits'")
        page.until("document.querySelectorAll('.edge.dead').length === 2 && document.querySelectorAll('.node.dead').length === 2",
                   'the circle in the graph')
        assert page.js("document.querySelectorAll('#waits li.dead').length") == 2
        left.end()
        page.until("!document.querySelector('#alerts .deadlock')", 'it is over')
        page.js("location.hash = '#/'")


def test_a_name_that_looks_like_markup_stays_text(page, serve):
    names = ['<img src=x onerror="window.broken=1">', '"><script>window.broken=1</script>', "'; javascript:alert(1)//",
             '</td></tr></table>', '&lt;b&gt;', 'line\nbreak \u202e mark', '#/lock/%41']
    for name in names:
        redis('hset', name, GONE, '1')
    for name in names:
        page.until(f"!!({row(name)})", name)
        page.js(f"location.hash = {row(name)}.querySelector('a').getAttribute('href')")
        page.until(f"document.getElementById('h-lock').textContent === {name!r}", 'the page of ' + name)
        page.js("location.hash = '#/'")
    assert page.js("document.querySelectorAll('main img, main script').length") == 0
    assert page.js('window.broken') is None
    redis('del', *names)


def test_by_keyboard_alone(page, serve):
    redis('hset', 'keys:one', GONE, '1')
    redis('hset', 'keys:two', GONE, '1')
    page.until(f"!!({row('keys:two')})")
    page.js("document.activeElement.blur()")
    seen = []
    for _ in range(24):
        page.key('Tab')
        seen.append(page.js("document.activeElement.id || document.activeElement.textContent"))
    for wanted in ('Skip to the content', 'tab-locks', 'tab-waits', 'tab-clients', 'search', 'show', 'sort', 'keys:one'):
        assert wanted in seen, (wanted, seen)
    assert page.js("getComputedStyle(document.activeElement).outlineStyle") != 'none', 'the focus is not to be seen'
    page.js("document.activeElement.blur()")
    page.key('/', '/')
    page.until("document.activeElement.id === 'search'", 'the search')
    page.type('keys')
    page.until("document.querySelectorAll('#locks tr').length === 2", 'what was searched')
    page.key('ArrowDown')
    page.key('ArrowDown')
    assert page.js("document.activeElement.textContent") == 'keys:two'
    page.key('Enter')
    page.until("document.activeElement.id === 'h-lock' && document.activeElement.textContent === 'keys:two'", 'its page')
    page.key('Escape')
    page.until("!document.getElementById('view-locks').hidden", 'back')
    page.key('/', '/')
    page.until("document.activeElement.id === 'search'")
    page.key('Escape')
    page.until("document.getElementById('search').value === ''")
    redis('del', 'keys:one', 'keys:two')


def test_for_a_screen_reader(page, serve):
    redis('hset', 'spoken', GONE, '1')
    page.until(f"!!({row('spoken')})")
    nodes = page.tell('Accessibility.getFullAXTree')['nodes']
    found = {(node.get('role', {}).get('value'), node.get('name', {}).get('value')) for node in nodes if not node.get('ignored')}
    roles = {role for role, _ in found}
    for wanted in ('main', 'table', 'row', 'cell', 'alert', 'image'):
        assert wanted in roles, (wanted, roles)
    for wanted in (('navigation', 'Views'), ('searchbox', 'Search by name, host or program'), ('columnheader', 'Holder'),
                   ('link', 'spoken'), ('status', 'live'), ('table', 'Locks'), ('combobox', 'Sort by')):
        assert any(role == wanted[0] and (name or '').strip() == wanted[1] or
                   role == wanted[0] == 'status' for role, name in found), (wanted, found)
    redis('del', 'spoken')


def test_on_a_phone(page, serve):
    redis('hset', 'a-name-' + 'without-an-end-' * 12, GONE, '1')
    redis('rpush', 'redisson_lock_queue:{phone}', *[f'{GONE}{i}' for i in range(9)])
    redis('hset', 'phone', GONE, '1')
    page.size(390, 844)
    page.until(f"!!({row('phone')})")
    for view in ('#/', '#/waits', '#/clients', '#/lock/phone'):
        page.js(f"location.hash = '{view}'")
        page.until("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
        width = page.js("document.documentElement.scrollWidth")
        assert width <= 390, f'{view} is {width} wide'
    page.js("location.hash = '#/'")
    page.until(f"getComputedStyle({row('phone')}).display === 'block'", 'cards')
    page.size(1280, 860)
    redis('flushdb')


CONTRAST = """(() => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = node => { for (; node; node = node.parentElement) { const c = parse(getComputedStyle(node).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  const bad = [];
  for (const node of document.querySelectorAll('body *')) {
    if (![...node.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !node.checkVisibility() || node.closest('svg')) continue;
    const a = light(parse(getComputedStyle(node).color)), b = light(behind(node));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) bad.push(node.tagName + '.' + node.className + ' ' + node.textContent.slice(0, 20) + ' ' + ratio.toFixed(2));
  }
  return bad; })()"""


def test_in_the_dark(page, serve):
    redis('hset', 'night', GONE, '1')
    page.until(f"!!({row('night')})")
    for scheme in ('light', 'dark'):
        page.colours(scheme)
        page.until(f"(c => {{ const sum = c[0] + c[1] + c[2]; return '{scheme}' === 'dark' ? sum < 120 : sum > 600; }})"
                   "(getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number))", scheme)
        for view in ('#/', '#/clients', '#/waits', '#/lock/night'):
            page.js(f"location.hash = '{view}'")
            page.until("new Promise(done => requestAnimationFrame(() => done(true)))")
            assert page.js(CONTRAST) == [], (scheme, view, page.js(CONTRAST))
    page.js("location.hash = '#/'")
    page.colours('light')
    redis('del', 'night')


def test_many(page, serve):
    commands = []
    for i in range(1000):
        commands += [f'hset many:{i} {GONE} 1', f'pexpire many:{i} {30000 + i * 60}']
    commands.append('rpush redisson_lock_queue:{many:7} ' + ' '.join(f'5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:{100 + i}' for i in range(200)))
    redis(text='\n'.join(commands) + '\n')
    page.until("document.getElementById('count').textContent === '1000 locks'", 'a thousand locks')
    page.until(f"({cells('many:7')} || [])[5]?.startsWith('200')", 'two hundred waiters')
    report = {}
    for view in ('#/', '#/lock/many%3A7', '#/waits'):
        page.js(f"location.hash = '{view}'")
        # All of them change with every survey.
        measured = page.js("""(async () => {
          const long = [], gaps = [];
          const observer = new PerformanceObserver(list => long.push(...list.getEntries().map(e => e.duration)));
          observer.observe({ entryTypes: ['longtask'] });
          const end = performance.now() + 2500;
          for (let last = performance.now(); last < end;) {
            const now = await new Promise(requestAnimationFrame);
            gaps.push(now - last); last = now;
          }
          observer.disconnect();
          return { long: long.length, longest: Math.max(0, ...long), gap: Math.max(...gaps), frames: gaps.length }; })()""")
        report[view] = measured
        redis(text='\n'.join(f'pexpire many:{i} {40000 + i * 60}' for i in range(1000)) + '\n')
        assert measured['longest'] < 5000 and measured['gap'] < 5000, report
    for view, measured in report.items():
        print(f"        {view}: {measured['frames']} frames in 2.5 s, longest gap {measured['gap']:.0f} ms, "
              f"{measured['long']} long tasks, longest {measured['longest']:.0f} ms")
    page.js("location.hash = '#/'")
    page.until("document.querySelectorAll('#locks tr').length === 300", 'not all at once')
    page.js("document.getElementById('more').click()")
    page.until("document.querySelectorAll('#locks tr').length === 600")
    page.js("document.getElementById('search').value = 'many:999'; document.getElementById('search').dispatchEvent(new Event('input'))")
    page.until("document.querySelectorAll('#locks tr').length === 1", 'any of them is found')
    page.js("document.getElementById('search').value = ''; document.getElementById('search').dispatchEvent(new Event('input'))")
    redis('flushdb')
    page.until("document.querySelectorAll('#locks tr').length === 0")


def test_breaking(page, serve):
    with running(('run', 'broken/lock', '--', 'sleep', '1000')):
        page.until(f"!!({row('broken/lock')})")
        page.js("location.hash = '#/lock/' + encodeURIComponent('broken/lock')")
        page.until("!document.getElementById('break').hidden", 'the button')
        page.js("document.getElementById('break').focus()")
        page.key('Enter')
        page.until("document.getElementById('ask').open && document.activeElement.id === 'ask-token'", 'the question')
        page.type('wrong')
        page.key('Enter')
        page.until("document.getElementById('ask-error').textContent.includes('Wrong token')", 'a wrong token')
        page.js("document.getElementById('ask-token').value = ''")
        page.type(TOKEN)
        page.key('Enter')
        page.until("!document.getElementById('ask').open", 'it is done')
        wait_for(lambda: redis('exists', 'broken/lock') == '0', 'it is still held')
        page.until("!!document.querySelector('#lock-holders .none')", 'nobody holds it')
        page.until("[...document.querySelectorAll('#lock-events li')].some(li => li.textContent.includes('broken, held by '))", 'a break is no release')
    messages = open(DIR + '/page.err', encoding='utf-8').read()
    assert re.search("127.0.0.1 port [0-9]+ asked to break 'broken/lock': it is broken", messages), messages
    page.js("location.hash = '#/'")
    page.complaints.clear()  # the browser tells of the refusal


def test_the_history_of_a_lock(page, serve):
    # What happened while another view was open is read when the lock's page is opened; what happens then is added.
    with running(('run', 'past', '--', 'sleep', '1000')) as (first,):
        page.until(f"{cells('past')}", 'it is held')
    page.until(f"!({row('past')})", 'it is free')
    page.js("location.hash = '#/lock/past'")
    page.until("/ sleep/.test(document.querySelector('#lock-events').textContent)", 'its history')
    text = page.js("[...document.querySelectorAll('#lock-events li span')].map(span => span.textContent).join('\\n')")
    assert re.search(r'acquired by \S+ \d+ sleep', text), text
    assert re.search(r'(released|no longer held) by \S+ \d+ sleep', text), text
    assert text.index('acquired by') > text.index(' held by' if 'no longer' in text else 'released by'), 'the latest is first: ' + text
    times = page.js("[...document.querySelectorAll('#lock-events time')].map(time => time.dateTime)")
    assert times and all(re.fullmatch(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z', time) for time in times), times
    redis('hset', 'past', GONE, '1')
    page.until("document.querySelector('#lock-events').textContent.includes('acquired by 5c4dd3c1…')", 'what is new')
    redis('del', 'past')
    page.js("location.hash = '#/'")


def test_slots_are_held(page, serve):
    with running(('run', '--slots', '2', 'seats', '--', 'sleep', '1000')) as (first,):
        page.until(f"!!({row('seats')})")
        page.js("location.hash = '#/clients'")
        page.until(f"[...document.querySelectorAll('#clients tr')].some(tr => tr.cells[0].textContent.includes(' {holder_of(first)} ') && "
                   "tr.cells[3].textContent === '1')", 'its slot is counted')
        page.js("location.hash = '#/'")


def test_nothing_to_break(page, serve):
    # Who had it has given it back meanwhile: that is said, and not as if it had been broken.
    redis('hset', 'brief', GONE, '1')
    page.until(f"!!({row('brief')})")
    page.js("location.hash = '#/lock/brief'")
    page.until("!document.getElementById('break').hidden", 'the button')
    page.js("document.getElementById('break').click()")
    page.until("document.getElementById('ask').open", 'the question')
    redis('del', 'brief')
    page.js(f"document.getElementById('ask-token').value = {TOKEN!r}; document.getElementById('ask-form').requestSubmit()")
    page.until("document.getElementById('ask-error').textContent.includes('nothing was broken')", 'the error')
    assert page.js("document.getElementById('ask').open")
    page.js("document.getElementById('ask').close(); location.hash = '#/'")
    # A name that is no text has a page, but the page cannot send it to the server.
    redis('eval', "return redis.call('hset', 'nul\\0b', ARGV[1], 1)", '0', GONE)
    page.until("[...document.querySelectorAll('#locks a')].some(link => link.textContent.startsWith('nul'))", 'its row')
    page.js("location.hash = '#/lock/nul%00b'")
    page.until("document.getElementById('view-lock').hidden === false && !!document.querySelector('#lock-holders .party-head')", 'its page')
    assert page.js("document.getElementById('break').hidden")
    page.js("location.hash = '#/'")
    redis('eval', "return redis.call('del', 'nul\\0b')", '0')


def test_beyond_this_machine_it_asks_for_the_token(page, serve):
    redis('hset', 'secret', GONE, '1')
    open_to_all = Serve('0.0.0.0:0', path=DIR + '/open.err')
    page.go(open_to_all.url.replace('0.0.0.0', '127.0.0.1'))
    page.until("document.getElementById('ask')?.open && document.activeElement.id === 'ask-token'", 'the question')
    assert 'secret' not in page.js('document.body.innerText')
    page.type('wrong')
    page.key('Enter')
    page.until("document.getElementById('ask-error').textContent.includes('Wrong token')", 'a wrong token')
    page.js("document.getElementById('ask-token').value = ''")
    page.type(TOKEN)
    page.key('Enter')
    page.until(f"!!({row('secret')})", 'what it shows')
    redis('del', 'secret')
    page.go(serve.url)
    page.until("document.getElementById('live')?.textContent === 'live'")
    open_to_all.process.end()
    page.complaints.clear()


def test_one_page_too_many_says_so(page, serve):
    address = serve.url.split('/')[2].split(':')
    others = []
    page.go('about:blank')
    try:
        def is_one_more():
            others.append(socket.create_connection((address[0], int(address[1])), LIMIT))
            others[-1].sendall(b'GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n')
            if b' 200 ' in others[-1].recv(64):
                return True
            others.pop().close()
            return False

        while len(others) < 32:  # the page's own counts until it is noticed that it is gone
            wait_for(is_one_more, 'one more is let in')
        page.go(serve.url)
        page.until("document.getElementById('note')?.textContent.includes('too many open pages')", 'why there is nothing')
    finally:
        for other in others:
            other.close()
    page.until("document.getElementById('live').textContent === 'live'", 'there is room again')
    page.complaints.clear()


def test_away_and_back(page, serve):
    redis('hset', 'kept', GONE, '1')
    page.until(f"!!({row('kept')})")
    serve.process.end()
    page.until("document.getElementById('live').textContent.startsWith('stale since ')", 'it says so')
    page.until("document.getElementById('note').textContent.includes('no longer answers')")
    assert page.js(f"!!({row('kept')})"), 'what was known stays'
    again = Serve(serve.url.split('/')[2])
    page.until("document.getElementById('live').textContent === 'live'", 'it is back')
    serve.process = again.process
    redis('del', 'kept')
    page.complaints.clear()


def main():
    serve = Serve()
    page = Browser(DIR + '/profile')
    failed = 0
    try:
        page.size(1280, 860)
        page.colours('light')
        page.go(serve.url)
        tests = [value for name, value in globals().items() if name.startswith('test_')]
        for test in tests:
            if os.environ.get('ONLY', '') not in test.__name__:
                continue
            from_time = time.monotonic()
            try:
                test(page, serve)
                assert not page.complaints, page.complaints
                print(f'ok      {test.__name__[5:]} ({time.monotonic() - from_time:.1f} s)', flush=True)
            except (AssertionError, RuntimeError, TimeoutError) as error:
                failed += 1
                print(f'FAILED  {test.__name__[5:]}: {error}', flush=True)
                page.complaints.clear()
                redis('flushdb')
                page.js("location.hash = '#/'")
        if PICTURES:
            import serve_pictures
            serve.process.end()
            serve_pictures.take(page, PICTURES)
    finally:
        page.close()
        serve.process.end()
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
