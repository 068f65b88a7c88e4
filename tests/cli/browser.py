"""A real browser for tests: Debian's chromium, without a window, driven through the pipe of its DevTools protocol.

Only the standard library is used. Every wait is for a condition, with a limit that only a hang reaches.
"""
import base64
import json
import os
import select
import signal
import subprocess
import time

LIMIT = 90


class Browser:
    def __init__(self, profile):
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()

        def give_pipes():
            # The protocol wants 3 and 4; these may be in use by the pipes themselves, so they are moved away first.
            high = [os.dup2(fd, fd + 64) for fd in (to_read, to_write)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        flags = ['--headless=new', '--remote-debugging-pipe', '--no-first-run', '--disable-gpu', '--hide-scrollbars',
                 '--disable-extensions', '--disable-background-networking', '--disable-component-update',
                 '--disable-sync', '--disable-dev-shm-usage', '--mute-audio', '--no-default-browser-check',
                 '--force-device-scale-factor=1', '--lang=en', '--user-data-dir=' + profile]
        if os.geteuid() == 0:
            flags.append('--no-sandbox')
        self.process = subprocess.Popen(['chromium', *flags], preexec_fn=give_pipes, close_fds=False,
                                        start_new_session=True, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self._buffer = b''
        self._number = 0
        self._answers = {}
        self.complaints = []  # what the page said is wrong
        target = self.call('Target.createTarget', {'url': 'about:blank'})['targetId']
        self.session = self.call('Target.attachToTarget', {'targetId': target, 'flatten': True})['sessionId']
        for domain in ('Page', 'Runtime', 'Log'):
            self.tell(domain + '.enable')

    def close(self):
        """Ends the browser and everything it started: they are a session of their own."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self._read)
        os.close(self._write)

    # ---- The protocol ----

    def call(self, method, params=None, session=None):
        self._number += 1
        number = self._number
        message = {'id': number, 'method': method, 'params': params or {}}
        if session:
            message['sessionId'] = session
        data = json.dumps(message).encode() + b'\0'
        while data:
            data = data[os.write(self._write, data):]
        end = time.monotonic() + LIMIT
        while number not in self._answers:
            self._take(end)
        answer = self._answers.pop(number)
        if 'error' in answer:
            raise RuntimeError(f'{method}: {answer["error"]}')
        return answer['result']

    def tell(self, method, params=None):
        """The same, to the page."""
        return self.call(method, params, self.session)

    def _take(self, end):
        if not select.select([self._read], [], [], max(0, end - time.monotonic()))[0]:
            raise TimeoutError('the browser does not answer')
        data = os.read(self._read, 1 << 20)
        if not data:
            raise RuntimeError('the browser has ended')
        *messages, self._buffer = (self._buffer + data).split(b'\0')
        for message in map(json.loads, messages):
            if 'id' in message:
                self._answers[message['id']] = message
            elif message['method'] == 'Runtime.exceptionThrown':
                self.complaints.append(json.dumps(message['params']['exceptionDetails'])[:600])
            elif message['method'] == 'Log.entryAdded':
                entry = message['params']['entry']
                if entry['level'] == 'error':
                    self.complaints.append(entry['text'] + ' ' + entry.get('url', ''))

    # ---- The page ----

    def go(self, url):
        self.tell('Page.navigate', {'url': url})

    def js(self, expression):
        answer = self.tell('Runtime.evaluate',
                           {'expression': expression, 'returnByValue': True, 'awaitPromise': True})
        if 'exceptionDetails' in answer:
            raise RuntimeError(f'{expression}: {answer["exceptionDetails"]}')
        return answer['result'].get('value')

    def until(self, expression, what=None):
        """Waits until an expression is true, and returns its value."""
        end = time.monotonic() + LIMIT
        while True:
            try:
                value = self.js(expression)
            except RuntimeError as error:  # The page is just being changed for another.
                if time.monotonic() > end:
                    raise AssertionError(f'{what or expression}: {error}') from error
                value = None
            if value:
                return value
            if time.monotonic() > end:
                text = self.js('document.body.innerText')
                raise AssertionError(f'it did not come to: {what or expression}\nthe page says:\n{text}')
            time.sleep(0.05)  # a value of the page, which sends no event when it changes

    def key(self, key, text=''):
        codes = {'Tab': 9, 'Enter': 13, 'Escape': 27, 'ArrowDown': 40, 'ArrowUp': 38}
        code = codes.get(key, ord(key[0].upper()))
        if key == 'Enter':
            text = '\r'
        event = {'key': key, 'windowsVirtualKeyCode': code}
        if text:
            event['text'] = text
        self.tell('Input.dispatchKeyEvent', {'type': 'keyDown', **event})
        self.tell('Input.dispatchKeyEvent', {'type': 'keyUp', 'key': key, 'windowsVirtualKeyCode': code})

    def type(self, text):
        for letter in text:
            self.key(letter, letter)

    def size(self, width, height, scale=1):
        self.tell('Emulation.setDeviceMetricsOverride',
                  {'width': width, 'height': height, 'deviceScaleFactor': scale, 'mobile': width < 600})

    def colours(self, scheme):
        self.tell('Emulation.setEmulatedMedia', {'features': [{'name': 'prefers-color-scheme', 'value': scheme}]})

    def picture(self, path):
        data = self.tell('Page.captureScreenshot', {'format': 'png', 'optimizeForSpeed': False})['data']
        with open(path, 'wb') as file:
            file.write(base64.b64decode(data))
