"""The pictures of `holdfast serve` in the documents: a small fleet of real processes on hosts with names, and what the
page makes of it. Only when serve_page.sh is asked for them, and only as root, since a host's name needs a namespace."""
import os
import shutil
import signal
import subprocess
import time

import serve_page as base

PORT = '6390'


def start(host, program, *arguments):
    """holdfast under the name of a program, on a host of that name."""
    path = f'{base.DIR}/{program}'
    if not os.path.exists(path):
        os.symlink(os.environ['HOLDFAST'], path)
    return base.Process('unshare', '--uts', 'sh', '-c', 'hostname "$1"; shift; exec "$@"', 'sh', host, path, '-s', base.SOCKET,
                        *arguments, stderr=subprocess.DEVNULL)


def held(*names):
    base.wait_for(lambda: base.redis('exists', *names) == str(len(names)), f'nobody holds {names}')


def smaller(path):
    if shutil.which('pngquant'):
        subprocess.run(['pngquant', '--force', '--skip-if-larger', '--strip', '--output', path, '64', path], check=False)
    assert os.path.getsize(path) < 200_000, f'{path} is too large for a document'


def take(page, directory):
    base.redis('flushall')
    base.redis('config', 'set', 'bind', '127.0.0.1')
    base.redis('config', 'set', 'port', PORT)
    both = 'while [ "$(redis-cli -s "$socket" exists stock:berlin stock:lyon)" != 2 ]; do tick; done; exec "$0" -s "$socket" run '
    fleet = [start('app1', 'transfer', 'run', 'stock:berlin', '--', 'sh', '-c', both + 'stock:lyon true', f'{base.DIR}/transfer'),
             start('app2', 'transfer', 'run', 'stock:lyon', '--', 'sh', '-c', both + 'stock:berlin true', f'{base.DIR}/transfer'),
             start('web1', 'report', 'run', 'nightly:report', '--', 'sleep', '1000'),
             start('web2', 'importer', 'run', '--fair', 'orders:import', '--', 'sleep', '1000')]
    held('stock:berlin', 'stock:lyon', 'nightly:report', 'orders:import')
    for host in ('web1', 'web3', 'web4'):
        fleet.append(start(host, 'importer', 'run', '--fair', 'orders:import', '--', 'true'))
        time.sleep(1.2)  # so that their waiting times differ in the picture
    fleet += [start('app1', 'mailer', 'run', 'mail:outgoing', '--', 'sleep', '1000'),
              start('app3', 'indexer', 'run', 'search:index', '--', 'sleep', '1000'),
              start('db1', 'backup', 'run', 'backup:weekly', '--', 'sleep', '1000'),
              start('app2', 'cron', 'run', 'mail:outgoing', '--', 'true')]
    held('mail:outgoing', 'search:index', 'backup:weekly')
    base.redis('hset', 'billing:close', '7d1e0c52-3f1b-49a4-b7f7-0c6f0a7b91ee:4294967297', '1')
    base.redis('pexpire', 'billing:close', '600000')
    serve = base.Serve(tool=('unshare', '--uts', 'sh', '-c', 'hostname ops1; exec "$0" "$@"', os.environ['HOLDFAST'], '-p', PORT))
    # One whose name changes hands all the time.
    relay = [base.Process('sh', '-c', 'while :; do "$@"; done', 'sh', 'unshare', '--uts', 'sh', '-c',
                          f'hostname web{i}; exec {base.DIR}/importer -s {base.SOCKET} run --fair cache:rebuild -- sleep 0.$(($$ % 7 + 2))',
                          stderr=subprocess.DEVNULL) for i in (1, 2, 3)]
    try:
        page.size(1280, 860)
        page.go(serve.url)
        page.until("!!document.querySelector('.deadlock')")
        time.sleep(62)  # a minute of history is drawn
        page.js("document.activeElement.blur()")
        wide, phone = (1280, 860), (390, 844)
        for name, view, scheme, size in (('serve', '#/', 'light', wide), ('serve-waits', '#/waits', 'dark', wide),
                                         ('serve-lock', '#/lock/cache%3Arebuild', 'light', wide),
                                         ('serve-phone', '#/', 'dark', phone)):
            page.colours(scheme)
            page.size(*size)
            page.js(f"location.hash = '{view}'")
            time.sleep(1.5)  # the chart moves until it has been drawn
            page.js("document.activeElement.blur()")
            path = f'{directory}/{name}.png'
            page.picture(path)
            smaller(path)
    finally:
        for process in relay + fleet:
            process.end(signal.SIGTERM)
        serve.process.end()
