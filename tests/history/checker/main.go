// Judges histories of holdfast: checker DIR reads the logs of a run, and says of each kind whether
// all answers that its players got can be explained by things that happened one after the other.
//
//	checker DIR            exit status 0 if it can, 1 if not, 3 if that could not be decided
//	checker -plant DIR     changes single answers of a good history, and expects them to be found
//	checker -expect DIR... expects a violation of every kind, in any of the runs
//	checker -any DIR...    expects a violation of any kind
//	checker -times DIR     also says which name of each kind took how long
//
// Each name is a history of its own, and its operations are few: what cannot be decided within
// the limits of time and memory is a failure of its own.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	exitWrong     = 1
	exitError     = 2
	exitUndecided = 3
	memoryMax     = 1 << 30
	mostOps       = 4000 // on one name
	expectWithin  = time.Second
	explainWithin = 10 * time.Second
	explainMax    = 20 // operations before the one that cannot be explained
)

var (
	limit = flag.Duration("limit", 2*time.Minute, "for one name")
	times = flag.Bool("times", false, "say which name took longest")
)

// watchMemory ends the program before it takes the machine's memory.
func watchMemory() {
	debug.SetMemoryLimit(memoryMax)
	for range time.Tick(200 * time.Millisecond) {
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		if stats.HeapAlloc > memoryMax {
			fmt.Println("NOT DECIDED: it would take more than 1 GiB of memory")
			os.Exit(exitUndecided)
		}
	}
}

func judge(h *history, ops []*op, within time.Duration) porcupine.CheckResult {
	m := modelOf(ops[0].kind)
	if len(ops) > mostOps {
		return porcupine.Unknown
	}
	events := m.events(h, ops)
	if hasChances(events) {
		result := searched(m, events, within)
		if result != porcupine.Illegal || !hasLine(events) {
			return result
		}
	}
	return porcupine.CheckOperationsTimeout(m.porcupine(), events, within)
}

// unreached is the operation that returned first of those that the longest order does not reach.
func unreached(info porcupine.LinearizationInfo, events []porcupine.Operation, ops []*op) *op {
	reached, judged := map[*op]bool{}, map[*op]bool{}
	for _, e := range events {
		judged[e.Input.(*event).op] = true
	}
	for _, partials := range info.PartialLinearizationsOperations() {
		longest := []porcupine.Operation{}
		for _, partial := range partials {
			if len(partial) > len(longest) {
				longest = partial
			}
		}
		for _, done := range longest {
			reached[done.Input.(*event).op] = true
		}
	}
	var first *op
	for _, o := range ops {
		if judged[o] && !reached[o] && (first == nil || o.ret < first.ret) {
			first = o
		}
	}
	return first
}

// explain prints what could not be put in order, and what was done just before.
func explain(h *history, ops []*op, dir string) {
	m := modelOf(ops[0].kind)
	events := m.events(h, ops)
	_, info := porcupine.CheckOperationsVerbose(m.porcupine(), events, explainWithin)
	if last := unreached(info, events, ops); last != nil {
		var before []*op
		for _, o := range ops {
			if o.call < last.ret && o != last {
				before = append(before, o)
			}
		}
		if len(before) > explainMax {
			before = before[len(before)-explainMax:]
		}
		for _, o := range before {
			fmt.Printf("    %s\n", o)
		}
		fmt.Printf("  no order reaches\n    %s\n", last)
	}
	path := fmt.Sprintf("%s/%s.html", dir, ops[0].name)
	if err := porcupine.VisualizePath(m.porcupine(), info, path); err == nil {
		fmt.Printf("  drawn in %s\n", path)
	}
}

type tally struct {
	names, ops, wrong, undecided int
	slowest                      string
	took                         time.Duration // for that one
}

// judgeTimed judges a name, and notes how long that took.
func judgeTimed(h *history, ops []*op, t *tally) porcupine.CheckResult {
	begun := time.Now()
	result := judge(h, ops, *limit)
	if took := time.Since(begun); took > t.took {
		t.slowest, t.took = ops[0].name, took
	}
	return result
}

// judgeAll judges each name, and prints a line for each kind. If nothing is to be explained, one that is
// wrong is enough.
func judgeAll(h *history, dir string, explains bool) map[string]*tally {
	tallies := map[string]*tally{}
	for _, kind := range h.kinds {
		tallies[kind] = &tally{}
	}
	for _, ops := range h.parts() {
		t := tallies[ops[0].kind]
		if t.wrong > 0 && !explains {
			continue
		}
		t.names++
		t.ops += len(ops)
		switch judgeTimed(h, ops, t) {
		case porcupine.Illegal:
			t.wrong++
			if explains {
				fmt.Printf("WRONG: %s, %d operations: no order explains the answers\n", ops[0].name, len(ops))
				explain(h, ops, dir)
			}
		case porcupine.Unknown:
			t.undecided++
			if !explains {
				break
			}
			fmt.Printf("NOT DECIDED: %s, %d operations: not within %v\n", ops[0].name, len(ops), *limit)
		}
	}
	for _, kind := range h.kinds {
		t := tallies[kind]
		fmt.Printf("%-13s %3d names %6d operations %3d wrong %3d undecided\n", kind, t.names, t.ops, t.wrong,
			t.undecided)
		if *times {
			fmt.Printf("%-13s at most %v, for %s\n", kind, t.took.Round(time.Millisecond), t.slowest)
		}
	}
	return tallies
}

func judgeHistory(h *history, dir string) int {
	status := 0
	for kind, t := range judgeAll(h, dir, true) {
		if t.wrong > 0 {
			return exitWrong
		}
		if t.ops == 0 {
			fmt.Printf("NOT DECIDED: nobody played %s\n", kind)
			status = exitUndecided
		}
		if t.undecided > 0 {
			status = exitUndecided
		}
	}
	return status
}

// expect is for runs in which something is wrong. One name of a kind is enough, so none is thought about
// for long. It need not show in every run: in one of them, with every kind, or with any.
func expect(dirs []string, every bool) int {
	found := map[string]bool{}
	*limit = expectWithin
	for _, dir := range dirs {
		for kind, t := range judgeAll(mustRead(dir), dir, false) {
			found[kind] = found[kind] || t.wrong > 0
		}
	}
	any, status := false, 0
	for kind, ok := range found {
		any = any || ok
		if !ok && every {
			fmt.Printf("MISSED: nothing wrong was found with %s so far\n", kind)
			status = exitWrong
		}
	}
	if !any {
		status = exitWrong
	}
	return status
}

func mustRead(dir string) *history {
	h, err := readHistory(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitError)
	}
	return h
}

func main() {
	plants := flag.Bool("plant", false, "change single answers, and expect them to be found")
	expects := flag.Bool("expect", false, "expect a violation of every kind")
	any := flag.Bool("any", false, "expect a violation of any kind")
	flag.Parse()
	if flag.NArg() < 1 || flag.NArg() > 1 && !*expects && !*any {
		fmt.Fprintln(os.Stderr, "usage: checker [-limit 2m] [-times] [-plant] DIR | [-expect | -any] DIR...")
		os.Exit(exitError)
	}
	go watchMemory()
	dir := flag.Arg(0)
	switch {
	case *plants:
		os.Exit(plantAll(mustRead(dir)))
	case *expects || *any:
		os.Exit(expect(flag.Args(), *expects))
	default:
		os.Exit(judgeHistory(mustRead(dir), dir))
	}
}
