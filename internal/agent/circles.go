package agent

import "fmt"

// step is what one turn did, for comparing.
type step struct {
	turn    int
	action  string // digest of its code
	outcome string // digest of what happened
	failure string // name and value of the error it ended with; "" for none
}

// How often the same may happen.
const (
	tellAt    = 3 // the model is told
	rewindAt  = 4 // and is set back
	failTell  = 4 // the same error, whatever the code
	failBack  = 6
	swingTell = 6 // steps of going back and forth between two
	swingBack = 8
	maxBacks  = 2 // then the run ends
)

// circle is a run that goes in circles: since which turn, and what to say.
type circle struct {
	since int
	words string
	back  bool // telling was not enough
}

// goingInCircles looks at the latest steps; nil when they lead somewhere.
func goingInCircles(steps []step) *circle {
	n := len(steps)
	if n == 0 {
		return nil
	}
	last := steps[n-1]
	same := trailing(steps, func(s step) bool { return s.action == last.action && s.outcome == last.outcome })
	if same >= tellAt {
		return &circle{steps[n-same].turn, fmt.Sprintf("You ran the same code %d times, and the same happened each time. It will not change.", same), same >= rewindAt}
	}
	if last.failure != "" {
		if failed := trailing(steps, func(s step) bool { return s.failure == last.failure }); failed >= failTell {
			return &circle{steps[n-failed].turn, fmt.Sprintf("The last %d turns ended with the same error, %s. What you change does not reach its cause.", failed, last.failure), failed >= failBack}
		}
	}
	swing := 0
	for i := n - 1; i >= 0; i-- {
		want := steps[n-1-(n-1-i)%2]
		if i < n-2 && (steps[i].action != want.action || steps[i].outcome != want.outcome) {
			break
		}
		swing++
	}
	if swing >= swingTell && steps[n-1].action != steps[n-2].action {
		return &circle{steps[n-swing].turn, fmt.Sprintf("For %d turns you went back and forth between two cells, with the same outcomes.", swing), swing >= swingBack}
	}
	return nil
}

func trailing(steps []step, alike func(step) bool) int {
	n := 0
	for i := len(steps) - 1; i >= 0 && alike(steps[i]); i-- {
		n++
	}
	return n
}
